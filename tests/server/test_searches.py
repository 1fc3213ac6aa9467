"""Long searches let others in, take turns, end when nobody waits for them, and are carried out only if they hold."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from starlette.requests import ClientDisconnect, Request

from tests.lab import Machine, a_node
from ullage.core.books.slices import Slices, at_once
from ullage.core.evicting.moving import Consolidation
from ullage.core.evicting.preemption import Preemption
from ullage.core.placing.decision import Choice
from ullage.model.allocation import AllocationState
from ullage.model.claim import Claim
from ullage.model.claim import Request as Asked
from ullage.model.error import PlanChanged, Unavailable
from ullage.model.request import ResourceRequirement
from ullage.server.allocations import Refused
from ullage.server.consolidation import ConsolidationApi
from ullage.server.searches import MOST_WAITING, Searches


def nothing() -> None:
    pass


def caller(body: Any = None, left: asyncio.Event | None = None) -> Request:
    """A request whose caller stays until `left` is set."""
    messages = iter([{"type": "http.request", "body": msgspec.json.encode(body), "more_body": False}] if body else [])

    async def receive() -> Any:
        for message in messages:
            return message
        await (left or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/v1/room", "headers": [], "query_string": b""}
    return Request(scope, receive)


def steps(log: list[str], name: str, number: int = 3) -> Callable[[], Slices[str]]:
    def begin() -> Slices[str]:
        try:
            for k in range(number):
                log.append(f"{name}{k}")
                yield
        finally:
            log.append(f"{name} ends")
        return name

    return begin


# --- turns ---


def test_others_have_their_turn_between_two_slices() -> None:
    log: list[str] = []

    async def other() -> None:
        for _ in range(3):
            log.append("other")
            await asyncio.sleep(0)

    async def main() -> None:
        beside = asyncio.ensure_future(other())
        assert await Searches().result_for(caller(), steps(log, "a")) == "a"
        await beside

    asyncio.run(main())
    mine = [k for k, entry in enumerate(log) if entry in {"a0", "a1", "a2"}]
    assert all("other" in log[first:after] for first, after in pairwise(mine))


def test_searches_run_one_at_a_time_in_their_order() -> None:
    log: list[str] = []

    async def main() -> None:
        searches = Searches()
        found = await asyncio.gather(*(searches.result_for(caller(), steps(log, name)) for name in "abc"))
        assert found == ["a", "b", "c"]

    asyncio.run(main())
    assert log == [entry for name in "abc" for entry in (*(f"{name}{k}" for k in range(3)), f"{name} ends")]


def test_a_search_ends_when_its_caller_leaves_and_one_that_waits_does_not_begin() -> None:
    log: list[str] = []

    async def main() -> None:
        searches, left = Searches(), asyncio.Event()
        ever = asyncio.ensure_future(searches.result_for(caller(left=left), steps(log, "a", 1 << 60)))
        waits = asyncio.ensure_future(searches.result_for(caller(left=left), steps(log, "b")))
        last = asyncio.ensure_future(searches.result_for(caller(), steps(log, "c")))
        for _ in range(50):
            await asyncio.sleep(0)
        assert "a3" in log
        left.set()
        assert await last == "c"
        for gone in (ever, waits):
            with pytest.raises(ClientDisconnect):
                await gone

    asyncio.run(main())
    assert "a ends" in log
    assert log.index("a ends") < log.index("c0")
    assert not [entry for entry in log if entry.startswith("b")]


def test_a_flood_is_refused_by_name_and_those_who_left_make_room() -> None:
    async def main() -> None:
        searches, left, log = Searches(), asyncio.Event(), list[str]()
        waiting = [
            asyncio.ensure_future(searches.result_for(caller(left=left), steps(log, "a", 1 << 60)))
            for _ in range(1 + MOST_WAITING)
        ]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable) as refused:
            await searches.result_for(caller(), steps(log, "b"))
        assert refused.value.code == "too-many-searches"
        left.set()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert await searches.result_for(caller(), steps(log, "b")) == "b"

    asyncio.run(main())


# --- the books change meanwhile ---


def asked(uid: str, text: str = "gpu=2", strategy: str | None = None) -> Asked:
    return Asked(uid, ResourceRequirement.from_string(text), Claim(), strategy)


@pytest.fixture
def machine(tmp_path: Any) -> Iterator[Machine]:
    """Three nodes of two cards, a part of a card held on each."""
    with Machine(str(tmp_path / "state.db"), *(a_node(f"n{k}", gpus=2) for k in range(3))) as lab:
        for uid in "abc":
            lab.service.allocations.alloc(asked(uid, "gpu=0.3", "spread"), nothing)
        lab.pump()
        assert {held.node for held in lab.service.state.fleet.ledger.values()} == {"n0", "n1", "n2"}
        yield lab


def room(machine: Machine, meanwhile: Callable[[int, int], None], **body: Any) -> Any:
    """What is answered; `meanwhile` is called after each slice with the numbers of the search and of the slice."""
    api, consolidations, count = ConsolidationApi(machine.service, Searches()), machine.service.consolidations, 0
    planning = consolidations.planning

    def watched(*args: Any) -> Slices[Any]:
        nonlocal count
        count += 1
        return _with(planning(*args), count)

    def _with(slices: Slices[Any], search: int) -> Slices[Any]:
        for number in range(1 << 60):
            try:
                next(slices)
            except StopIteration as end:
                return end.value
            yield
            meanwhile(search, number)
        return None

    consolidations.planning = watched

    async def main() -> Any:
        made = asyncio.ensure_future(api.make(caller({"resreq": "gpu=2", "dry_run": False, **body})))
        while not made.done():
            machine.pump()
            await asyncio.sleep(0)
        return await made

    try:
        return asyncio.run(main())
    finally:
        consolidations.planning = planning


def releasing(machine: Machine) -> set[str]:
    ledger = machine.service.state.fleet.ledger
    return {uid for uid, held in ledger.items() if held.state is AllocationState.RELEASING}


def first_move(machine: Machine) -> str:
    found = machine.service.consolidations.plan(asked("request"), 1, None)
    assert isinstance(found, Consolidation)
    (move,) = found.moves
    return str(move.allocation.id)


def test_a_plan_in_slices_is_the_plan_made_at_once_and_of_the_books_at_its_begin(machine: Machine) -> None:
    consolidations = machine.service.consolidations
    at_begin = consolidations.plan(asked("request"), 2, None)
    slices = consolidations.planning(asked("request"), 2, None)
    next(slices)
    for uid in "abc":
        machine.service.allocations.dealloc(uid, None, nothing)
    assert at_once(slices) == at_begin
    assert not machine.service.state.fleet.ledger


def test_what_does_not_touch_the_plan_changes_nothing(machine: Machine) -> None:
    found = machine.service.consolidations.plan(asked("request"), 1, None)
    assert isinstance(found, Consolidation)
    goes = found.moves[0].allocation.id

    def meanwhile(search: int, number: int) -> None:
        assert search == 1
        if number == 0:
            machine.service.allocations.bind(asked("small", "gpu=0.1"), found.moves[0].to.gpus, nothing)

    answer = room(machine, meanwhile, uids=["wide"])
    assert (answer.status, releasing(machine)) == (202, {goes})


@pytest.mark.parametrize("when", [0, 5, 9])
def test_nobody_leaves_when_there_is_room_without_it_by_now(machine: Machine, when: int) -> None:
    goes = first_move(machine)

    def meanwhile(search: int, number: int) -> None:
        if (search, number) == (1, when):
            machine.service.allocations.dealloc(goes, None, nothing)

    answer = room(machine, meanwhile, uids=["wide"])
    assert (answer.status, answer.body.moves, releasing(machine)) == (202, [], set())
    assert [unit.uid for unit in answer.body.units] == ["wide"]


def test_another_plan_is_made_when_somebody_took_a_place_of_the_first(machine: Machine) -> None:
    consolidations = machine.service.consolidations
    found = consolidations.plan(asked("request"), 1, None)
    assert isinstance(found, Consolidation)
    free = [
        uuid
        for uuid in found.units[0].gpus
        if not machine.service.state.fleet.card_holders([machine.service.state.fleet.card_of[uuid]])
    ]

    def meanwhile(search: int, number: int) -> None:
        if (search, number) == (1, 3):
            machine.service.allocations.bind(asked("thief", "gpu=1"), free, nothing)

    answer = room(machine, meanwhile, uids=["wide"])
    (unit,), (move,) = answer.body.units, answer.body.moves
    assert not set(unit.gpus) & set(free)
    assert releasing(machine) == {move.uid}


def test_who_was_told_to_go_meanwhile_is_not_told_again_and_its_room_not_promised(machine: Machine) -> None:
    goes = first_move(machine)

    def meanwhile(search: int, number: int) -> None:
        if (search, number) == (1, 0):
            machine.service.allocations.release(goes, 60.0, nothing)

    answer = room(machine, meanwhile, uids=["wide"])
    assert answer.status == 202
    assert goes not in [move.uid for move in answer.body.moves]
    assert releasing(machine) == {goes, *(move.uid for move in answer.body.moves)}


def test_after_some_plans_that_do_not_hold_nothing_is_done(machine: Machine) -> None:
    def meanwhile(search: int, number: int) -> None:
        if number == 0:  # whoever moves is another one by then
            machine.pass_time(1.0)
            for uid in "abc":
                machine.service.allocations.dealloc(uid, None, nothing)
                machine.service.allocations.alloc(asked(uid, "gpu=0.3", "spread"), nothing)

    with pytest.raises(PlanChanged):
        room(machine, meanwhile, uids=["wide"])
    assert not releasing(machine)
    assert not machine.service.preemptions.nominations()


def test_a_refusal_is_one(machine: Machine) -> None:
    with pytest.raises(Refused):
        room(machine, lambda *_: None, count=3)
    assert not releasing(machine)


def test_a_caller_who_leaves_asks_nobody_to_go(machine: Machine) -> None:
    api, left = ConsolidationApi(machine.service, Searches()), asyncio.Event()
    body = {"resreq": "gpu=2", "dry_run": False}

    async def main() -> None:
        left.set()
        with contextlib.suppress(ClientDisconnect):
            await api.make(caller(body, left))
            raise AssertionError("it was answered")

    asyncio.run(main())
    assert not releasing(machine)


def test_who_would_give_way_is_found_in_slices_as_at_once_and_of_the_books_at_its_begin(machine: Machine) -> None:
    preemptions, urgent = machine.service.preemptions, replace(asked("urgent"), claim=Claim(priority=100))
    at_begin = preemptions.plan(urgent)
    assert isinstance(at_begin, Preemption)
    assert at_begin.victims
    slices = preemptions.planning(urgent)
    for _ in range(3):
        next(slices)
    for uid in "abc":
        machine.service.allocations.dealloc(uid, None, nothing)
    machine.pump()
    assert at_once(slices) == at_begin
    assert isinstance(machine.service.allocations.simulate(urgent).outcome, Choice), "the books themselves went on"
