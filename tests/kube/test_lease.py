"""Leader election on an API server in process, with clocks of the test's own."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.kube import bodies
from tests.kube.api_server import ApiServer, Canned
from ullage.kube.client.changes import Create, Delete
from ullage.kube.client.errors import Unreachable
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import LEASES, PODS
from ullage.kube.client.lease import Candidate, LeaseTerms, NotLeading, clock_s
from ullage.kube.client.objects import Lease
from ullage.model.error import NotFound

pytestmark = pytest.mark.anyio
PLACE = ("ullage", "default")


class Time:
    """A clock that the test moves, and a wall clock that may be set to anything."""

    def __init__(self) -> None:
        self.s = 1000.0
        self.wall = datetime(2026, 5, 4, 3, 2, 1, 7, UTC)  # at the beginning

    def now(self) -> datetime:
        return self.wall + timedelta(seconds=self.s - 1000.0)

    def candidate(self, api: HttpKubeApi, **options: Any) -> Candidate:
        return Candidate(api, *PLACE, clock=lambda: self.s, now=self.now, **options)

    async def wait(self, seconds: float, *candidates: Candidate, every_s: float = 2.0) -> None:
        """Time passes, in which these candidates try as they do."""
        end = self.s + seconds
        while self.s < end:
            self.s = min(end, self.s + every_s)
            for candidate in candidates:
                await candidate.attempt()


@pytest.fixture
def time() -> Time:
    return Time()


async def record(api: HttpKubeApi) -> Lease:
    return await api.get(LEASES, *PLACE)


def writes(server: ApiServer) -> int:
    return sum(method != "GET" for method, _ in server.asked)


async def test_the_first_candidate_leads_and_writes_the_record(api: HttpKubeApi, time: Time) -> None:
    first, second = time.candidate(api), time.candidate(api)
    assert first.identity != second.identity
    assert first.epoch is None
    for candidate in (first, second):
        await candidate.attempt()
    assert (first.epoch, second.epoch) == (1, None)
    assert first.holder == second.holder == first.identity
    assert (await record(api)).document["spec"] == {
        "holderIdentity": first.identity,
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-05-04T03:02:01.000007Z",
        "renewTime": "2026-05-04T03:02:01.000007Z",
        "leaseTransitions": 1,
    }


async def test_renewals_keep_others_away(api: HttpKubeApi, time: Time) -> None:
    first, second = time.candidate(api), time.candidate(api)
    await first.attempt()
    await time.wait(60, first, second)
    assert (first.epoch, second.epoch) == (1, None)
    spec = (await record(api)).spec
    assert (spec.acquire_time, spec.renew_time) == ("2026-05-04T03:02:01.000007Z", "2026-05-04T03:03:01.000007Z")


async def test_a_lease_is_free_when_it_has_not_changed_for_its_time(api: HttpKubeApi, time: Time) -> None:
    first, second = time.candidate(api), time.candidate(api)
    await first.attempt()
    await time.wait(8, first)
    await second.attempt()
    await time.wait(14.9, second)
    assert second.epoch is None
    await time.wait(0.1, second)
    assert second.epoch == 2
    assert first.epoch is None


@pytest.mark.parametrize("off", [timedelta(days=-400), timedelta(days=400)])
async def test_wall_clocks_decide_nothing(api: HttpKubeApi, time: Time, off: timedelta) -> None:
    first, second = time.candidate(api), Time()
    second.wall += off
    other = second.candidate(api)
    await first.attempt()
    await second.wait(14.9, other)
    assert other.epoch is None
    await time.wait(2, first)
    await second.wait(14.9, other)
    assert other.epoch is None
    await second.wait(3, other)
    assert other.epoch == 2


async def test_a_leader_that_cannot_renew_stops_in_time(server: ApiServer, api: HttpKubeApi, time: Time) -> None:
    first = time.candidate(api)
    await first.attempt()
    server.canned.append(Canned("PUT", "/ullage", 500, times=1000))
    await time.wait(9.9, first)
    assert first.epoch == 1
    assert first.last_error is not None
    assert first.last_error.code == "kube-unavailable"
    await time.wait(0.1)
    assert first.epoch is None
    server.canned.clear()
    await first.attempt()
    assert first.epoch == 2, "what was decided in the term that ended stays over"


async def test_the_term_counts_from_before_the_renewal_was_sent(api: HttpKubeApi, time: Time) -> None:
    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(api, name)

        async def write(self, change: Any) -> bytes:
            time.s += 4
            return await api.write(change)

    first = time.candidate(Slow())  # type: ignore[arg-type]  # a slow server
    await first.attempt()
    assert first.left_s == 6
    await first.attempt()
    assert first.left_s == 6


async def test_a_paused_leader_writes_nothing_when_it_wakes(server: ApiServer, api: HttpKubeApi) -> None:
    frozen, time = Time(), Time()
    paused, other = frozen.candidate(api), time.candidate(api)
    await paused.attempt()
    decided_in = paused.epoch
    assert decided_in == 1
    await paused.write(decided_in, Create(PODS, bodies.pod("before"), "default"))
    await time.wait(20, other)  # while the first one stands still
    assert other.epoch == 2
    await other.write(2, Create(PODS, bodies.pod("other"), "default"))
    frozen.s += 20  # it wakes up, and has heard nothing yet
    before = writes(server)
    with pytest.raises(NotLeading) as raised:
        await paused.write(decided_in, Create(PODS, bodies.pod("late"), "default"))
    assert raised.value.code == "not-leading"
    assert writes(server) == before
    await paused.attempt()
    assert (paused.epoch, paused.holder) == (None, other.identity)
    await other.release()
    await paused.attempt()
    assert paused.epoch == 3
    with pytest.raises(NotLeading):  # it leads again, but not in the term in which this was decided
        await paused.write(decided_in, Create(PODS, bodies.pod("late"), "default"))
    with pytest.raises(NotFound):
        await api.get(PODS, "late", "default")


async def test_of_many_candidates_for_a_free_lease_one_takes_it(api: HttpKubeApi, time: Time) -> None:
    candidates = [time.candidate(api) for _ in range(6)]
    for expected in (1, 2, 3):
        await asyncio.gather(*(candidate.attempt() for candidate in candidates))
        assert sorted(candidate.epoch or 0 for candidate in candidates) == [0, 0, 0, 0, 0, expected]
        await asyncio.gather(*(candidate.attempt() for candidate in candidates))
        time.s += 20


async def test_a_released_lease_is_free_at_once(api: HttpKubeApi, time: Time) -> None:
    first, second = time.candidate(api), time.candidate(api)
    await first.attempt()
    await second.attempt()
    await second.release()  # it has nothing to release
    assert first.epoch == 1
    await first.release()
    assert first.epoch is None
    assert not (await record(api)).spec.holder_identity
    await second.attempt()
    assert second.epoch == 2


async def test_a_write_with_a_lost_response_has_a_known_outcome(
    server: ApiServer, api: HttpKubeApi, time: Time
) -> None:
    first = time.candidate(api)
    server.canned.append(Canned("POST", "/leases", 500, carried_out=True))
    await first.attempt()
    assert first.epoch is None
    assert (await record(api)).spec.holder_identity == first.identity
    await first.attempt()
    assert first.epoch == 2 == (await record(api)).spec.lease_transitions
    server.canned.append(Canned("PUT", "/ullage", 500, carried_out=True))
    await first.attempt()
    assert first.epoch == 2
    await time.wait(9, first)
    assert first.epoch == 2


async def test_a_lease_that_was_deleted_is_made_again_with_a_later_epoch(api: HttpKubeApi, time: Time) -> None:
    first, second = time.candidate(api), time.candidate(api)
    await first.attempt()
    await second.attempt()
    await api.write(Delete(LEASES, *PLACE[:1], namespace=PLACE[1]))
    await second.attempt()
    assert second.epoch is None, "the first one may believe for a while that it leads"
    await first.attempt()
    assert first.epoch == 2
    await second.attempt()
    await api.write(Delete(LEASES, *PLACE[:1], namespace=PLACE[1]))
    await time.wait(20, second)
    assert second.epoch == 3


async def test_a_lease_of_another_program_is_understood(api: HttpKubeApi, time: Time) -> None:
    await api.write(Create(LEASES, bodies.lease(*PLACE[:1], "another-program"), "default"))
    first = time.candidate(api)
    await time.wait(15, first)
    assert first.epoch is None
    await time.wait(2, first)
    assert first.epoch == 1


async def test_it_tries_every_two_seconds(server: ApiServer, api: HttpKubeApi, time: Time) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        time.s += seconds
        if len(pauses) == 5:
            raise asyncio.CancelledError

    candidate = time.candidate(api, pause=pause)
    with pytest.raises(asyncio.CancelledError):
        await candidate.run()
    assert candidate.epoch == 1
    assert pauses == [2.0] * 5
    assert writes(server) == 5


async def test_no_write_outlives_its_term(server: ApiServer, api: HttpKubeApi) -> None:
    candidate = Candidate(api, *PLACE, LeaseTerms(4, 0.1, 3.0))
    await candidate.attempt()
    epoch = candidate.epoch
    assert epoch is not None
    server.canned.append(Canned("POST", "/pods", 429, {"Retry-After": "4"}))
    with pytest.raises(Unreachable):
        await candidate.write(epoch, Create(PODS, bodies.pod("late"), "default"))
    assert candidate.epoch is None
    assert server.asked[-1][1].startswith("/api/v1/namespaces/default/pods"), "it was asked once, and not again"
    assert writes(server) == 2


def test_the_clock_counts_while_the_machine_sleeps() -> None:
    before = clock_s()
    assert clock_s() >= before > 0


@pytest.mark.parametrize("terms", [(15, 2, 15), (15, 10, 10), (15, 0, 10), (1, 2, 10)])
def test_durations_that_allow_two_leaders_are_refused(terms: tuple[int, float, float]) -> None:
    with pytest.raises(ValueError, match="is needed"):
        LeaseTerms(*terms)
