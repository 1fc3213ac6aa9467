"""Long searches yield to other work, run in order, end with their callers, and are checked before they take effect."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from starlette.requests import ClientDisconnect, Request

from tests.lab import Machine, a_node
from ullage.core.books.slices import Slices, at_once
from ullage.core.evicting.moves import Consolidation
from ullage.core.evicting.preemption import Preemption
from ullage.core.placing.decision import Choice
from ullage.model.allocation import AllocationState
from ullage.model.claim import Claim, Qos
from ullage.model.claim import Request as Asked
from ullage.model.error import PlanChanged, Unavailable
from ullage.model.identity import Identity, Role
from ullage.model.request import ResourceRequirement
from ullage.server.access import IDENTITY
from ullage.server.allocations import AllocationApi, Refused
from ullage.server.consolidation import ConsolidationApi
from ullage.server.routes import Answer
from ullage.server.searches import MOST_WAITING, Searches
from ullage.service.engine_port import NodeReported


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
    return Request(scope | {IDENTITY: Identity("ann", Role.ADMIN, "token file")}, receive)


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


def test_a_flood_is_refused_and_cancelled_searches_make_room() -> None:
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
    """Return the answer to a request for room; as `searching`."""
    make = ConsolidationApi(machine.service, Searches()).make_room
    return searching(
        machine, machine.service.consolidations, meanwhile, make, {"resreq": "gpu=2", "dry_run": False, **body}
    )


def urgent(machine: Machine, meanwhile: Callable[[int, int], None], **body: Any) -> Any:
    """Return the answer to an urgent request with preemption; as `searching`."""
    create = AllocationApi(machine.service, Searches()).create_allocation
    asks = {"uid": "urgent", "resreq": "gpu=2", "qos": "critical", "preempt": True, **body}
    return searching(machine, machine.service.preemptions, meanwhile, create, asks)


def searching(
    machine: Machine,
    of: Any,
    meanwhile: Callable[[int, int], None],
    handler: Callable[[Request], Awaitable[Any]],
    body: dict[str, Any],
) -> Any:
    """Return the answer; `meanwhile` is called after each slice with the numbers of the search and of the slice."""
    planning, count = of.planning, 0

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

    of.planning = watched

    async def main() -> Any:
        made = asyncio.ensure_future(handler(caller(body)))
        while not made.done():
            machine.pump()
            await asyncio.sleep(0)
        return body_of(await made)

    try:
        return asyncio.run(main())
    finally:
        of.planning = planning


def body_of(answer: Any) -> Any:
    """The body of an answer, as it is written."""
    if isinstance(answer, Answer):
        return replace(answer, body=body_of(answer.body))
    return answer() if callable(answer) else answer


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


def test_unrelated_changes_keep_the_plan(machine: Machine) -> None:
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
def test_nothing_moves_if_there_is_room_at_the_end_of_the_search(machine: Machine, when: int) -> None:
    goes = first_move(machine)

    def meanwhile(search: int, number: int) -> None:
        if (search, number) == (1, when):
            machine.service.allocations.dealloc(goes, None, nothing)

    answer = room(machine, meanwhile, uids=["wide"])
    assert (answer.status, answer.body.moves, releasing(machine)) == (202, [], set())
    assert [unit.uid for unit in answer.body.units] == ["wide"]


def test_another_plan_is_made_if_a_place_of_the_first_was_taken(machine: Machine) -> None:
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


@pytest.mark.parametrize("late", ["thief", "node", "nothing"])
def test_a_plan_that_was_confirmed_is_carried_out_only_if_later_changes_allow_it(machine: Machine, late: str) -> None:
    consolidations, fleet = machine.service.consolidations, machine.service.state.fleet
    found = consolidations.plan(asked("request"), 1, None)
    assert isinstance(found, Consolidation)
    confirmed = consolidations.confirming(asked("request"), None, found)()
    if late == "thief":
        free = [uuid for uuid in found.units[0].gpus if not fleet.card_holders([fleet.card_of[uuid]])]
        machine.service.allocations.bind(asked("thief", "gpu=1"), free, nothing)
        with pytest.raises(PlanChanged):
            consolidations.carry_out_plan(asked("request"), ["wide"], None, confirmed, nothing)
        assert not releasing(machine)
        return
    if late == "node":
        machine.service.on_engine_event(NodeReported(a_node("n9", gpus=1)))
        assert machine.service.state.fleet is not fleet
    assert consolidations.carry_out_plan(asked("request"), ["wide"], None, confirmed, nothing) is found
    assert releasing(machine) == {move.allocation.id for move in found.moves}


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


def test_a_caller_who_disconnects_starts_no_moves(machine: Machine) -> None:
    api, left = ConsolidationApi(machine.service, Searches()), asyncio.Event()
    body = {"resreq": "gpu=2", "dry_run": False}

    async def main() -> None:
        left.set()
        with contextlib.suppress(ClientDisconnect):
            await api.make_room(caller(body, left))
            raise AssertionError("it was answered")

    asyncio.run(main())
    assert not releasing(machine)


def test_victims_found_in_slices_are_those_of_the_books_at_the_start(machine: Machine) -> None:
    preemptions, wanted = machine.service.preemptions, replace(asked("wanted"), claim=Claim(priority=100))
    at_begin = preemptions.plan(wanted)
    assert isinstance(at_begin, Preemption)
    assert at_begin.victims
    slices = preemptions.planning(wanted)
    for _ in range(3):
        next(slices)
    for uid in "abc":
        machine.service.allocations.dealloc(uid, None, nothing)
    machine.pump()
    assert at_once(slices) == at_begin
    assert isinstance(machine.service.allocations.simulate(wanted).outcome, Choice), "the books themselves went on"


FOR_EVER = 1e12
MORE_URGENT = 1 << 30


def first_victims(machine: Machine) -> tuple[str, ...]:
    found = machine.service.preemptions.plan(replace(asked("urgent"), claim=Claim(qos=Qos.CRITICAL, priority=100)))
    assert isinstance(found, Preemption)
    return found.uids


def nobody_waits(machine: Machine) -> bool:
    return not machine.service.preemptions.nominations() and not releasing(machine)


def test_victims_of_a_long_search_leave_and_a_repeat_searches_no_more(machine: Machine) -> None:
    goes = first_victims(machine)
    searches: list[int] = []
    answer = urgent(machine, lambda search, number: searches.append(search))
    assert (answer.status, releasing(machine)) == (202, set(goes))
    assert set(searches) == {1}
    again = urgent(machine, lambda search, number: searches.append(search + 1))
    assert (again.status, set(searches)) == (202, {1})
    for uid in goes:
        machine.service.allocations.dealloc(uid, None, nothing)
    placed = urgent(machine, lambda search, number: searches.append(search + 1))
    assert (placed.node, set(searches)) == (answer.body.node, {1})


@pytest.mark.parametrize("when", [0, 2])
def test_nothing_is_evicted_if_the_request_fits_at_the_end_of_the_search(machine: Machine, when: int) -> None:
    (goes,) = first_victims(machine)

    def meanwhile(search: int, number: int) -> None:
        if (search, number) == (1, when):
            machine.service.allocations.dealloc(goes, None, nothing)

    assert urgent(machine, meanwhile).uid == "urgent"
    assert nobody_waits(machine)


def test_a_request_that_was_placed_meanwhile_gets_the_same_answer(machine: Machine) -> None:
    (goes,) = first_victims(machine)

    def meanwhile(search: int, number: int) -> None:
        if (search, number) == (1, 0):
            machine.service.allocations.dealloc(goes, None, nothing)
            machine.service.allocations.alloc(asked("urgent"), nothing)

    assert [gpu.uuid for gpu in urgent(machine, meanwhile).gpus] == list(machine.service.allocations.get("urgent").gpus)
    assert nobody_waits(machine)


@pytest.mark.parametrize("fault", ["gone", "leaving", "protected", "dearer"])
def test_other_victims_are_searched_when_the_first_do_not_help_any_more(machine: Machine, fault: str) -> None:
    (first,) = first_victims(machine)
    allocations, searches = machine.service.allocations, set[int]()

    def meanwhile(search: int, number: int) -> None:
        searches.add(search)
        if (search, number) != (1, 1):
            return
        cards = machine.service.state.fleet.ledger[first].gpus
        if fault == "leaving":
            allocations.release(first, 60.0, nothing)
            return
        allocations.dealloc(first, None, nothing)
        uid = "other" if fault == "gone" else first
        claim = Claim(protected_until=FOR_EVER) if fault == "protected" else Claim(priority=MORE_URGENT)
        allocations.bind(replace(asked(uid, "gpu=0.3"), claim=claim), cards, nothing)

    answer = urgent(machine, meanwhile)
    assert (answer.status, searches) == (202, {1, 2})
    (nomination,) = machine.service.preemptions.nominations()
    assert first not in [victim.uid for victim in nomination.victims]
    assert releasing(machine) - {first} == {victim.uid for victim in nomination.victims}


def test_after_some_searches_with_changed_victims_nothing_is_evicted(machine: Machine) -> None:
    def meanwhile(search: int, number: int) -> None:
        if number == 0:  # whoever would leave is another one by then
            for uid in list(machine.service.state.fleet.ledger):
                machine.service.allocations.dealloc(uid, None, nothing)
            for k in range(3):
                machine.service.allocations.alloc(asked(f"{search}-{k}", "gpu=0.3", "spread"), nothing)

    with pytest.raises(PlanChanged):
        urgent(machine, meanwhile)
    assert nobody_waits(machine)


def test_a_refusal_after_a_search_is_counted_and_evicts_nothing(machine: Machine) -> None:
    before = machine.service.allocations.refused.total()
    with pytest.raises(Refused):
        urgent(machine, lambda *_: None, qos="low", priority=0)
    assert machine.service.allocations.refused.total() == before + 1
    assert nobody_waits(machine)


def test_a_caller_who_disconnects_evicts_nothing(machine: Machine) -> None:
    left = asyncio.Event()
    left.set()
    body = {"uid": "urgent", "resreq": "gpu=2", "qos": "critical", "preempt": True}
    with pytest.raises(ClientDisconnect):
        asyncio.run(AllocationApi(machine.service, Searches()).create_allocation(caller(body, left)))
    assert nobody_waits(machine)


# --- a request that is placed before its search begins ---


@pytest.mark.parametrize("way", ["create_allocation", "plan_allocation"])
def test_a_request_that_got_cards_while_its_search_waited_is_answered_with_them(machine, way):
    """The searches of others go first; meanwhile the same request is placed without evicting anybody."""
    api, lab = AllocationApi(machine.service, Searches()), machine
    body = {"uid": "u", "resreq": "gpu=2", "qos": "critical", "preempt": True}

    async def main() -> list[Any]:
        first = asyncio.ensure_future(api.plan_allocation(caller({**body, "uid": "other"})))
        waits = [asyncio.ensure_future(getattr(api, way)(caller(body))) for _ in range(2)]
        for _ in range(3):
            await asyncio.sleep(0)
        lab.service.allocations.dealloc("a", None, nothing)
        placed = lab.service.allocations.alloc(asked("u"), nothing)
        while not all(each.done() for each in waits):
            lab.pump()
            await asyncio.sleep(0)
        await first
        found = [each.result() for each in waits]
        return [placed, *(each() if callable(each) else each for each in found)]

    placed, *found = asyncio.run(main())
    for answer in found:
        chosen = answer.choice if way == "plan_allocation" else answer
        assert [gpu.uuid for gpu in chosen.gpus] == list(placed.gpus)
