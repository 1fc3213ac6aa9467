"""The process dies, or an answer gets lost, at every write: what another one finds, it completes or takes back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("cel_expr_python", reason="cel-expr-python is in the lock, and not installed here")

from tests.kube.api_server import ApiServer, Canned
from tests.kube.claims import MARK, a_claim, allocated, claiming, delete, edit, furnish, gated, get, users, wants
from tests.kube.conftest import until
from tests.kube.test_claims import holders, let_go, running
from tests.kube.test_front import put
from ullage.bootstrap.kube_front import make_front
from ullage.core.placing.rules import Rules
from ullage.kube.client.changes import Change, Patch
from ullage.kube.client.errors import Unreachable, VersionConflict
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.lease import Candidate

pytestmark = [pytest.mark.timeout(300), pytest.mark.anyio]


class Mortal:
    """An API whose user dies at a certain write of a claim or a pod: before it is carried out, or just after."""

    def __init__(self, api: HttpKubeApi, at: int, *, after: bool) -> None:
        self._api, self._left, self._after = api, at, after
        self.dead = asyncio.Event()
        self.wrote: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def write(self, change: Change) -> bytes:
        if not isinstance(change, Patch):
            return await self._api.write(change)
        if self.dead.is_set():
            raise Unreachable("dead")
        self._left -= 1
        if self._left == 0:
            self.dead.set()
            if self._after:
                await self._api.write(change)
            raise Unreachable("dead")
        self.wrote.append(f"{change.kind.plural}/{change.name}/{change.subresource}")
        return await self._api.write(change)


async def die(server: ApiServer, api: HttpKubeApi, at: int, *, after: bool) -> bool:
    """Let a process live until that write, or until the pod is let go; whether there was one."""
    mortal = Mortal(api, at, after=after)
    front = make_front(mortal, Candidate(mortal, "ullage", "default"), Rules())
    work = asyncio.create_task(front.run())
    await until(lambda: not front.extender.unready, "the front is ready")
    await until(lambda: mortal.dead.is_set() or not gated(server, "p"), "it wrote what there is to write")
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    await Candidate.release(front.candidate)
    return mortal.dead.is_set()


def devices_are_held_once(server: ApiServer, *claims: str) -> None:
    given = [device for claim in claims for device in allocated(server, claim)]
    assert len(given) == len(set(given))


STEPS = 5  # two claims with two writes each, and the gate


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, STEPS + 1))
async def test_the_next_leader_completes_it(server: ApiServer, api: HttpKubeApi, at: int, after: bool):
    furnish(server, a=2, b=1)
    put(server, "resourceclaims", a_claim("one"), a_claim("two"))
    put(server, "pods", claiming("p", "one", "two"))
    assert await die(server, api, at, after=after)
    devices_are_held_once(server, "one", "two")
    async with running(api) as front:
        await let_go(server, "p")
        assert sorted(allocated(server, "one") + allocated(server, "two")) == ["a/gpu-0", "a/gpu-1"]
        assert users(server, "one") == users(server, "two") == ["p"]
        await until(lambda: len(holders(front)) == 2, "the books have both")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, STEPS))
async def test_the_next_leader_frees_what_cannot_be_completed(
    server: ApiServer, api: HttpKubeApi, at: int, after: bool
):
    """Meanwhile somebody else took a card, so that both claims cannot be had together."""
    furnish(server, a=2)
    put(server, "resourceclaims", a_claim("one"), a_claim("two"), a_claim("theirs"))
    put(server, "pods", claiming("p", "one", "two"))
    assert await die(server, api, at, after=after)
    taken = set(allocated(server, "one") + allocated(server, "two"))
    if len(taken) == 2:
        return  # all is allocated: it will be completed
    free = next(name for name in ("gpu-1", "gpu-0") if f"a/{name}" not in taken)
    device = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "a", "device": free}
    edit(server, "resourceclaims", "theirs", allocation={"devices": {"results": [device]}})
    async with running(api) as front:
        await until(lambda: not allocated(server, "one") and not allocated(server, "two"), "both are given back")
        await until(lambda: len(holders(front)) == 1, "so the books say")
        assert gated(server, "p")
        assert allocated(server, "theirs") == [f"a/{free}"]
        edit(server, "resourceclaims", "theirs", allocation=None)
        await let_go(server, "p")


@pytest.mark.parametrize("at", range(1, STEPS + 1))
async def test_a_pod_that_went_meanwhile_leaves_nothing_behind(server: ApiServer, api: HttpKubeApi, at: int):
    furnish(server, a=2)
    put(server, "resourceclaims", a_claim("one"), a_claim("two"))
    put(server, "pods", claiming("p", "one", "two"))
    assert await die(server, api, at, after=True)
    delete(server, "p")
    async with running(api) as front:
        await until(lambda: not users(server, "one") and not users(server, "two"), "nothing is reserved")
        await until(lambda: not allocated(server, "one") and not allocated(server, "two"), "nothing is allocated")
        await until(lambda: not holders(front), "so the books say")


@pytest.mark.parametrize("path", ["/resourceclaims/one", "/resourceclaims/one/status", "/pods/p"])
@pytest.mark.parametrize("carried_out", [False, True], ids=["lost", "done"])
async def test_an_answer_that_gets_lost_is_found_out(server: ApiServer, api: HttpKubeApi, path: str, carried_out: bool):
    furnish(server, a=1)
    put(server, "resourceclaims", a_claim("one"), a_claim("two"))
    put(server, "pods", claiming("p", "one"), claiming("q", "two"))
    server.canned.append(Canned("PATCH", path, 500, carried_out=carried_out))
    async with running(api):
        await until(lambda: gated(server, "p") is not gated(server, "q"), "one of them is let go")
        waits = "q" if gated(server, "q") else "p"
        devices_are_held_once(server, "one", "two")
        delete(server, "q" if waits == "p" else "p")
        await let_go(server, waits)


async def test_a_claim_that_changed_in_between_is_read_again(server: ApiServer, api: HttpKubeApi):
    furnish(server, a=1)
    put(server, "resourceclaims", a_claim("one"))
    server.canned.append(Canned("PATCH", "/resourceclaims/one/status", 409))
    put(server, "pods", claiming("p", "one"))
    async with running(api):
        await let_go(server, "p")
        assert allocated(server, "one") == ["a/gpu-0"]


class Over:
    """A candidate whose term is over; it counts who asks for it."""

    looks, holder = 0, ""

    @property
    def epoch(self) -> None:
        self.looks += 1


async def test_who_leads_no_more_writes_nothing(server: ApiServer, api: HttpKubeApi):
    furnish(server, a=1)
    async with running(api) as front:
        over = front.claims.claiming._term._candidate = Over()
        before = len([1 for method, path in server.asked if method == "PATCH"])
        put(server, "resourceclaims", a_claim("one"))
        put(server, "pods", claiming("p", "one"))
        await until(lambda: ("default", "p") in front.pods.objects, "it is known")
        looks = over.looks
        await until(lambda: over.looks > looks + 2, "it has looked whether it leads")
        assert gated(server, "p")
        assert len([1 for method, path in server.asked if method == "PATCH"]) == before


async def test_only_our_own_allocation_is_taken_back(server: ApiServer, api: HttpKubeApi):
    """A claim that another client allocated keeps its allocation, whichever of our processes ran."""
    furnish(server, a=1)
    put(server, "resourceclaims", a_claim("theirs"))
    device = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "a", "device": "gpu-0"}
    edit(server, "resourceclaims", "theirs", allocation={"devices": {"results": [device]}})
    put(server, "pods", claiming("p", "theirs"))
    async with running(api):
        await let_go(server, "p")
        assert users(server, "theirs") == ["p"]
        assert MARK not in get(server, "resourceclaims", "theirs")["metadata"].get("annotations", {})
        delete(server, "p")
        await until(lambda: users(server, "theirs") == [], "the reservation goes")
        assert allocated(server, "theirs") == ["a/gpu-0"]


async def test_an_api_that_fails_for_a_while_ends_nothing(server: ApiServer, api: HttpKubeApi):
    furnish(server, a=1)
    put(server, "resourceclaims", a_claim("one"), a_claim("two"))
    put(server, "pods", claiming("p", "one"))
    errors: list[Any] = []
    async with running(api, errors):
        await let_go(server, "p")
        server.canned.append(Canned("GET", "/pods/p", 500, times=2))
        delete(server, "p")
        put(server, "pods", claiming("q", "two"))
        await let_go(server, "q")
        assert users(server, "one") == []
    assert [error.code for _, _, error in errors] == ["kube-unavailable"], "it is reported once"


async def test_what_is_kept_for_a_claim_that_went_is_free_again(server: ApiServer, api: HttpKubeApi):
    """The answer to the allocation gets lost, and so does every look at it, until the claim is another one."""
    furnish(server, a=1)
    put(server, "resourceclaims", a_claim("one"))
    put(server, "pods", claiming("p", "one"))
    server.canned.append(Canned("PATCH", "/resourceclaims/one/status", 500))
    server.canned.append(Canned("GET", "/resourceclaims/one", 500, times=3))
    async with running(api):
        server.do(lambda: server.rules.change(("resourceclaims", "default", "one"), without_finalizers))
        server.do(lambda: server.rules.delete(("resourceclaims", "default", "one"), {}))
        put(server, "resourceclaims", a_claim("one"))
        await let_go(server, "p")
        assert allocated(server, "one") == ["a/gpu-0"]


def without_finalizers(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "metadata": {**item["metadata"], "finalizers": []}}


async def test_who_fails_again_and_again_keeps_nobody_waiting(server: ApiServer, api: HttpKubeApi):
    """A claim that cannot be written: its pod gives back what it has each time, and the next one gets both cards."""
    furnish(server, a=2)
    put(server, "resourceclaims", a_claim("one"), a_claim("two"), a_claim("both", wants(count=2)))
    server.canned.append(Canned("PATCH", "/resourceclaims/two/status", 422, times=10_000))
    put(server, "pods", claiming("doomed", "one", "two"))
    put(server, "pods", claiming("q", "both"))
    async with running(api):
        await let_go(server, "q")
        assert allocated(server, "both") == ["a/gpu-0", "a/gpu-1"]
        await until(lambda: not allocated(server, "one"), "it holds nothing")
        assert gated(server, "doomed")


class Late:
    """An API to which the first allocation is sent, but comes only when the test lets it; nobody hears of it before."""

    def __init__(self, api: HttpKubeApi) -> None:
        self._api = api
        self.held: Patch | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def write(self, change: Change) -> bytes:
        if isinstance(change, Patch) and change.subresource == "status" and self.held is None:
            self.held = change
            raise Unreachable("no answer in time")
        return await self._api.write(change)

    async def arrive(self) -> bytes:
        assert self.held is not None
        return await self._api.write(self.held)


async def test_a_write_that_arrives_after_it_was_given_up_is_refused(server: ApiServer, api: HttpKubeApi):
    """Else the devices, which somebody else has by now, would be allocated twice."""
    furnish(server, a=1)
    put(server, "resourceclaims", a_claim("one"), a_claim("two"))
    put(server, "pods", claiming("p", "one"))
    late = Late(api)
    async with running(late):
        await until(lambda: late.held is not None, "it is on its way")
        delete(server, "p")
        decided_on = late.held.body["metadata"]["resourceVersion"]
        await until(lambda: version(server, "one") != decided_on, "it is given up")
        with pytest.raises(VersionConflict):
            await late.arrive()
        await until(lambda: not allocated(server, "one"), "nothing is allocated")


def version(server: ApiServer, claim: str) -> str:
    return str(get(server, "resourceclaims", claim)["metadata"]["resourceVersion"])


@pytest.mark.parametrize("restarted", [False, True])
async def test_what_a_pod_that_is_gone_leaves_is_freed_though_the_first_try_fails(
    server: ApiServer, api: HttpKubeApi, restarted: bool
):
    furnish(server, a=1)
    put(server, "resourceclaims", a_claim("one"))
    put(server, "pods", claiming("p", "one"))

    def leave() -> None:
        server.canned.append(Canned("PATCH", "/resourceclaims/one/status", 500))
        delete(server, "p")

    async with running(api):
        await let_go(server, "p")
        if not restarted:
            leave()
            await until(lambda: allocated(server, "one") == [], "it is freed")
    if restarted:
        leave()
        async with running(api):
            await until(lambda: allocated(server, "one") == [], "it is freed")
    assert server.canned[0].times == 0
    assert users(server, "one") == []
