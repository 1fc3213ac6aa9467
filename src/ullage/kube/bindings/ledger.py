"""The ledger of bindings in one ConfigMap: whoever changes it replaces exactly the version that was read.

That one write is the transaction: it is made whole or not at all, and what follows from it (bindings as objects,
annotations of nodes) is made good from it at any time. A leader writes its term into it first of all, so that a
write decided in an earlier term is refused by the API, however late it comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from ullage.core.binding.rows import Answered, Change, Ledger, applied
from ullage.kube.client.api import KubeApi
from ullage.kube.client.changes import Create, Replace
from ullage.kube.client.errors import VersionConflict
from ullage.kube.client.kinds import CONFIG_MAPS
from ullage.kube.client.lease import Candidate, NotLeading
from ullage.model.error import AlreadyExists, NotFound, UllageError, Unavailable, VersionChanged
from ullage.wire.document import Document, mapping, text
from ullage.wire.ledger import AnsweredRecord, LedgerRecord, decode_ledger, encode_ledger
from ullage.wire.pod import DOMAIN

KEY = "ledger"
"""Of the ConfigMap, where the ledger stands."""

_TERM = f"{DOMAIN}/term"
_VERSION = f"{DOMAIN}/ledger-version"


class LedgerStore:
    """The ledger as it was last known to be, and changes of it. `held` are ids of rows by which anybody runs now."""

    def __init__(
        self, api: KubeApi, candidate: Candidate, name: str, namespace: str, held: Callable[[], Collection[str]]
    ) -> None:
        self._api, self._candidate, self._name, self._namespace = api, candidate, name, namespace
        self._held = held
        self.restored: Callable[[], Ledger] = Ledger
        """Where the ConfigMap is gone: what of the ledger its pictures still tell."""
        self._term: int | None = None
        self._known: Ledger | None = None
        self._found: Document | None = None
        self._leaving: frozenset[str] = frozenset()
        self._one_at_a_time = asyncio.Lock()
        self.last_error = ""
        """Why it could not be read the last time."""
        self.changed: Callable[[], None] = lambda: None
        """Called when another ledger is known."""

    @property
    def now(self) -> Ledger | None:
        """The ledger, as long as it is certain that nobody else changed it: in a term of ours; else None."""
        return self._known if self._term is not None and self._term == self._candidate.epoch else None

    @property
    def leaving(self) -> frozenset[str]:
        """Ids of rows that are just being let go: nobody may begin to run by them."""
        return self._leaving

    async def read(self) -> Ledger:
        """The ledger; in a new term, or when it was in doubt, as the API has it.

        Raises:
            NotLeading: this process does not lead.
            UllageError: the API does not answer, or what it has is no ledger.

        """
        async with self._one_at_a_time:
            try:
                found = await self._read()
            except UllageError as error:
                self.last_error = error.message
                raise
            self.last_error = ""
            return found

    async def commit(self, change: Change, expected: int) -> None:
        """Make all of a change durable, if the ledger has the expected version, and nobody runs by what is dropped.

        Raises:
            VersionChanged: it has another one, or somebody began to run.
            Unavailable: it cannot be said whether it was made; `read` finds out.

        """
        async with self._one_at_a_time:
            known = await self._read()
            if known.version != expected or set(change.drop) & set(self._held()):
                raise VersionChanged(f"the bindings have version {known.version}, not {expected}")
            ending = {row.id for row in change.put if row.draining}
            self._leaving = frozenset((*change.drop, *ending))
            try:
                await self._write(applied(known, change))
            finally:
                self._leaving = frozenset()

    async def _read(self) -> Ledger:
        epoch = self._candidate.epoch
        if epoch is None:
            raise NotLeading(f"this process does not lead; {self._candidate.holder or 'nobody'} does")
        if self._known is not None and self._term == epoch:
            return self._known
        try:
            self._found = (await self._api.get(CONFIG_MAPS, self._name, self._namespace)).document
            kept = mapping(self._found.get("binaryData"), "binaryData")
            ledger = _ledger(decode_ledger(text(kept.get(KEY)))) if KEY in kept else Ledger()
        except NotFound:
            self._found, ledger = None, self.restored()
        self._term, self._known = epoch, None
        try:
            await self._write(ledger)
        except VersionChanged as error:
            raise Unavailable(error.message) from None
        return ledger

    async def _write(self, ledger: Ledger) -> None:
        """Put a ledger in the place of what was read; in any doubt nothing is known until it is read again."""
        body = self._body(ledger)
        name, space = self._name, self._namespace
        change = Create(CONFIG_MAPS, body, space) if self._found is None else Replace(CONFIG_MAPS, name, body, space)
        assert self._term is not None
        try:
            written = await self._candidate.write(self._term, change)
        except (VersionConflict, AlreadyExists):
            self._invalidate()
            raise VersionChanged(f"configmap {space}/{name} was changed by somebody else") from None
        except UllageError as error:
            self._invalidate()
            raise Unavailable(f"whether the bindings were changed is not known: {error.message}") from None
        self._found, self._known = CONFIG_MAPS.read(written).document, ledger
        self.changed()

    def _invalidate(self) -> None:
        """Somebody else may have changed it: whoever waits for news reads it again."""
        self._known = None
        self.changed()

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
