"""Leader election by a Lease: at most one process at a time believes that it leads. Each term has its own epoch.

A lease is not a lock: a process that was suspended may resume and continue to write. So every write names the epoch of
the term that decided it, and is refused once that term is over (`Candidate.write`, `Candidate.check`). A lease expires
if its record has not changed for a time measured by this machine's monotonic clock. Times in the record are for people.
Deleting the record while a process leads breaks this: a process that never saw it takes the lease at once, while the
other leads until its next renewal.

If the holder is known to have ended (`holder.py`), candidates do not wait for the lease to expire.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from ullage.kube.client.api import KubeApi
from ullage.kube.client.changes import Change, Create, Replace
from ullage.kube.client.errors import Unreachable
from ullage.kube.client.holder import HOLDER, has_ended, here, place_of, pod_has_ended
from ullage.kube.client.kinds import LEASES
from ullage.kube.client.objects import Lease, LeaseSpec
from ullage.model.error import Conflict, NotFound, UllageError


def clock_s() -> float:
    """Return seconds of a clock that includes suspend time and is never set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class NotLeading(Conflict):
    """The term in which this was decided is over, or never began. Nothing was written."""

    code = "not-leading"


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """Durations in seconds. Others wait longer than a leader continues without a renewal."""

    lease_s: int = 15
    renew_s: float = 2.0
    give_up_s: float = 10.0
    """From the start of the last successful renewal until a leader stops believing that it leads."""

    def __post_init__(self) -> None:
        """Refuse durations that would allow two leaders at once."""
        if not 0 < self.renew_s < self.give_up_s < self.lease_s:
            raise ValueError(f"{self}: 0 < renew_s < give_up_s < lease_s is needed")

    @property
    def look_s(self) -> float:
        """Seconds between checks of a candidate that does not lead."""
        return self.renew_s / 2

    @property
    def missed_s(self) -> float:
        """Seconds without a renewal after which one was missed."""
        return self.renew_s * 1.5


TERMS = LeaseTerms()


class Candidate:
    """One process that wants to lead. Its identity is new at every start.

    `run` tries forever; `epoch` is the number of the current term. To end a process, stop all writers, cancel `run`,
    and then call `release`, so that another candidate need not wait.
    """

    def __init__(
        self,
        api: KubeApi,
        name: str,
        namespace: str,
        terms: LeaseTerms = TERMS,
        *,
        clock: Callable[[], float] = clock_s,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api, self._name, self._namespace, self._terms = api, name, namespace, terms
        self._clock, self._now, self._pause = clock, now, pause
        self.identity = f"{socket.gethostname()}_{secrets.token_hex(8)}"
        self.place = here(self.identity)
        """Where this process runs, so that others can check whether it has ended."""
        self.holder = ""
        """The last observed leader; "" for none."""
        self.last_error: UllageError | None = None
        """The error of the last attempt."""
        self.handed_over = False
        """Whether the previous leader released the lease with no write in flight."""
        self._epoch: int | None = None
        self._until = 0.0
        self._highest = 0
        self._seen: LeaseSpec | None = None
        self._changed_at = 0.0

    @property
    def lease_s(self) -> int:
        """Seconds after which another candidate may lead if it observed no renewal."""
        return self._terms.lease_s

    @property
    def epoch(self) -> int | None:
        """The number of the term in which this process leads now; None if it does not. It only grows."""
        return self._epoch if self.left_s > 0 else None

    @property
    def left_s(self) -> float:
        """Seconds for which this process may continue without another renewal."""
        return self._until - self._clock() if self._epoch is not None else 0.0

    def leading(self) -> int:
        """Return the current term.

        Raises:
            NotLeading: this process does not lead.

        """
        epoch = self.epoch
        if epoch is None:
            raise NotLeading(f"this process does not lead; {self.holder or 'nobody'} does")
        return epoch

    def check(self, epoch: int) -> None:
        """Check that this process still leads in that term.

        Raises:
            NotLeading: the term is over.

        """
        if self.epoch != epoch:
            lease = f"lease {self._namespace}/{self._name}"
            now = "it was not renewed in time" if self.holder == self.identity else f"{self.holder or 'nobody'} leads"
            raise NotLeading(f"{lease}: term {epoch} of {self.identity} is over: {now}")

    async def write(self, epoch: int, change: Change) -> bytes:
        """Write within a term. The write is cancelled when the term, as known at its start, expires.

        The server also refuses a change that states the version it was decided on if another write came in between.

        Raises:
            NotLeading: the term is over; nothing was written.
            Unreachable: the write took longer than the rest of the term; it may have happened.

        """
        self.check(epoch)
        try:
            async with asyncio.timeout(self.left_s):
                return await self._api.write(change)
        except TimeoutError:
            raise Unreachable(f"a write of term {epoch} had no answer before its end", code="kube-timeout") from None

    async def run(self) -> None:
        """Acquire the lease when it is free, and renew it."""
        while True:
            began = self._clock()
            await self.attempt()
            gap_s = self._terms.look_s if self.epoch is None else self._terms.renew_s
            await self._pause(max(0.0, gap_s - (self._clock() - began)))

    async def attempt(self) -> None:
        """Read the record, and acquire or renew the lease if allowed. A failure is retried at the next call."""
        try:
            async with asyncio.timeout(self._terms.give_up_s / 2):
                await self._attempt()
            self.last_error = None
        except UllageError as error:
            self.last_error = error
        except TimeoutError:
            self.last_error = Unreachable(
                f"lease {self._namespace}/{self._name}: no answer in time", code="kube-timeout"
            )

    async def release(self) -> None:
        """Let another candidate lead at once. Nothing may be written in this term any more."""
        epoch, self._epoch = self.epoch, None
        if epoch is None:
            return
        try:
            found = await self._api.get(LEASES, self._name, self._namespace)
            if found.spec.holder_identity == self.identity:
                given_up = LeaseSpec(
                    lease_duration_seconds=1,
                    acquire_time=found.spec.acquire_time,
                    renew_time=self._time(),
                    lease_transitions=epoch,
                )
                await self._write(found, given_up)
        except UllageError as error:
            self.last_error = error  # the lease runs out by itself

    async def _attempt(self) -> None:
        try:
            found = await self._api.get(LEASES, self._name, self._namespace)
        except NotFound:
            self._epoch = None
            if self._seen is None or self._free(self._seen):
                await self._take(None)
            return
        spec = found.spec
        if spec != self._seen:
            self._seen, self._changed_at = spec, self._clock()
        self.holder = spec.holder_identity or ""
        self._highest = max(self._highest, spec.lease_transitions or 0)
        if self.holder == self.identity and self.epoch is not None and self.epoch == spec.lease_transitions:
            began = self._clock()
            await self._write(found, msgspec.structs.replace(spec, renew_time=self._time()))
            self._until = began + self._terms.give_up_s
            return
        self._epoch = None
        if self._free(spec) or await self._holder_has_ended(found):
            await self._take(found)

    async def _holder_has_ended(self, found: Lease) -> bool:
        """Return whether the holder is known to have ended. A kubelet's report counts after a missed renewal."""
        place = place_of(found)
        if place is None:
            return False
        if has_ended(place, self.place):
            return True
        quiet_s = self._clock() - self._changed_at
        return quiet_s >= self._terms.missed_s and await pod_has_ended(self._api, place, found)

    def _free(self, spec: LeaseSpec) -> bool:
        """Return whether no other process can still believe that it leads by this record."""
        lasts_s = max(spec.lease_duration_seconds or self._terms.lease_s, 1)
        held = spec.holder_identity not in (None, "", self.identity)
        return not held or self._clock() - self._changed_at >= lasts_s

    async def _take(self, found: Lease | None) -> None:
        """Start a term with an epoch above all observed ones, also if the record was deleted meanwhile."""
        began, epoch, time = self._clock(), self._highest + 1, self._time()
        taken = LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=self._terms.lease_s,
            acquire_time=time,
            renew_time=time,
            lease_transitions=epoch,
        )
        await self._write(found, taken)
        self._epoch, self._highest, self._until = epoch, epoch, began + self._terms.give_up_s
        self.holder, self.handed_over = self.identity, found is not None and not found.spec.holder_identity

    async def _write(self, found: Lease | None, spec: LeaseSpec) -> None:
        """Create the record, or replace exactly the version that was read."""
        note = {HOLDER: msgspec.json.encode(self.place).decode()}
        if found is None:
            body = {"metadata": {"name": self._name, "annotations": note}, "spec": spec}
            await self._api.write(Create(LEASES, body, self._namespace))
        else:
            metadata = {**found.document["metadata"], "annotations": {**(found.metadata.annotations or {}), **note}}
            body = {**found.document, "metadata": metadata, "spec": spec}
            await self._api.write(Replace(LEASES, self._name, body, self._namespace))

    def _time(self) -> str:
        return self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
