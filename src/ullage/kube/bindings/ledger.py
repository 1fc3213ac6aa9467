"""The ledger of bindings in one ConfigMap: each write replaces exactly the version that was read.

That write is the transaction: it succeeds as a whole or not at all. What follows from it (binding objects, node
annotations) is repaired from it at any time. A leader first writes its term into it, so the API server refuses a write
decided in an earlier term, however late it arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from ullage.binding.rows import Answered, Ledger, LedgerChange, applied
from ullage.kube.client.changes import Create, Replace
from ullage.kube.client.errors import VersionConflict
from ullage.kube.client.kinds import CONFIG_MAPS
from ullage.kube.context import KubeContext
from ullage.model.error import AlreadyExists, NotFound, UllageError, Unavailable, VersionChanged
from ullage.wire.document import Document, mapping, text
from ullage.wire.ledger import AnsweredRecord, LedgerRecord, decode_ledger, encode_ledger
from ullage.wire.pod import DOMAIN

KEY = "ledger"
"""The key in the ConfigMap that holds the ledger."""

_TERM = f"{DOMAIN}/term"
_VERSION = f"{DOMAIN}/ledger-version"


@dataclass(frozen=True, slots=True)
class LedgerUse:
    """What a store of the ledger needs of who uses it.

    `held` returns the ids of rows that running pods use, and `restored` the ledger as its projections show it, for use
    if the ConfigMap is deleted. `changed` is called when another ledger becomes known.
    """

    held: Callable[[], Collection[str]]
    restored: Callable[[], Ledger]
    changed: Callable[[], None]


class LedgerStore:
    """The last known ledger, and its changes."""

    def __init__(self, context: KubeContext, name: str, namespace: str, use: LedgerUse) -> None:
        """`name` and `namespace` are those of a ConfigMap."""
        self._api, self._candidate, self._name, self._namespace = context.api, context.candidate, name, namespace
        self._use = use
        self._term: int | None = None
        self._known: Ledger | None = None
        self._found: Document | None = None
        self.leaving: frozenset[str] = frozenset()
        """Ids of rows that are being released: no pod may start with them."""
        self._one_at_a_time = asyncio.Lock()
        self.last_error = ""
        """Why the last read failed."""

    @property
    def now(self) -> Ledger | None:
        """The ledger while it is certain that no other client changed it, within our term; else None."""
        return self._known if self._term is not None and self._term == self._candidate.epoch else None

    async def read(self) -> Ledger:
        """Return the ledger. In a new term, or if it is uncertain, read it from the API.

        Raises:
            NotLeading: this process does not lead.
            UllageError: the API does not answer, or its content is no ledger.

        """
        async with self._one_at_a_time:
            try:
                found = await self._read()
            except UllageError as error:
                self.last_error = error.message
                raise
            self.last_error = ""
            return found

    async def commit(self, change: LedgerChange, expected: int) -> None:
        """Write a whole change, if the ledger has the expected version and no pod runs with a dropped row.

        Raises:
            VersionChanged: the version differs, or a pod has started.
            Unavailable: the outcome is unknown; `read` determines it.

        """
        async with self._one_at_a_time:
            known = await self._read()
            if known.version != expected or set(change.drop) & set(self._use.held()):
                raise VersionChanged(f"the bindings have version {known.version}, not {expected}")
            ending = {row.id for row in change.put if row.draining}
            self.leaving = frozenset((*change.drop, *ending))
            try:
                await self._write(applied(known, change))
            finally:
                self.leaving = frozenset()

    async def _read(self) -> Ledger:
        epoch = self._candidate.leading()
        if self._known is not None and self._term == epoch:
            return self._known
        try:
            self._found = (await self._api.get(CONFIG_MAPS, self._name, self._namespace)).document
            kept = mapping(self._found.get("binaryData"), "binaryData")
            ledger = _ledger(decode_ledger(text(kept.get(KEY)))) if KEY in kept else Ledger()
        except NotFound:
            self._found, ledger = None, self._use.restored()
        self._term, self._known = epoch, None
        try:
            await self._write(ledger)
        except VersionChanged as error:
            raise Unavailable(error.message) from None
        return ledger

    async def _write(self, ledger: Ledger) -> None:
        """Replace the ledger that was read. After an uncertain outcome it is unknown until it is read again."""
        body = self._body(ledger)
        name, space = self._name, self._namespace
        change = Create(CONFIG_MAPS, body, space) if self._found is None else Replace(CONFIG_MAPS, name, body, space)
        assert self._term is not None
        try:
            written = await self._candidate.write(self._term, change)
        except (VersionConflict, AlreadyExists):
            self._invalidate()
            raise VersionChanged(f"configmap {space}/{name} was changed by another client") from None
        except UllageError as error:
            self._invalidate()
            raise Unavailable(f"it is unknown whether the bindings were changed: {error.message}") from None
        self._found, self._known = CONFIG_MAPS.read(written).document, ledger
        self._use.changed()

    def _invalidate(self) -> None:
        """Forget the ledger, as another client may have changed it, and notify those who wait to read it again."""
        self._known = None
        self._use.changed()

    def _body(self, ledger: Ledger) -> dict[str, Any]:
        record = LedgerRecord(
            ledger.version,
            ledger.rows,
            tuple(ledger.shares.items()),
            tuple(AnsweredRecord(each.key, each.asked, each.switch) for each in ledger.answered),
        )
        metadata = {"name": self._name, **mapping((self._found or {}).get("metadata"), "metadata")}
        notes = mapping(metadata.get("annotations"), "metadata.annotations")
        metadata["annotations"] = {**notes, _TERM: str(self._term), _VERSION: str(ledger.version)}
        return {"metadata": metadata, "binaryData": {KEY: encode_ledger(record)}}


def _ledger(record: LedgerRecord) -> Ledger:
    answered = (Answered(each.key, each.asked, each.switch) for each in record.answered)
    return Ledger(record.version, record.rows, dict(record.shares), tuple(answered))
