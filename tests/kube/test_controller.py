"""The queue of keys: none is lost, none runs twice at once, failures wait, and only a leader works."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.virtual_loop import run_virtual
from ullage.kube.client.errors import Unreachable
from ullage.kube.client.lease import NotLeading
from ullage.kube.controller import FIRST_S, Controller
from ullage.model.error import UllageError

LONG_S = 10_000.0


@dataclass(frozen=True)
class Outcome:
    """How long one call takes, and how it ends: with an error, or with a wish for another call."""

    lasts_s: float = 0.0
    fails: str = ""
    again_s: float | None = None


FINE = Outcome()


class Bench:
    """A controller whose calls end as the test says, and what it did when (seconds)."""

    def __init__(self, script: dict[str, list[Outcome]] | None = None, **options: Any) -> None:
        self.script = script or {}
        self.open = True
        self.starts: defaultdict[str, list[float]] = defaultdict(list)
        self.ends: defaultdict[str, list[tuple[float, Outcome]]] = defaultdict(list)
        self.order: list[str] = []
        self.errors: list[tuple[str, str, str]] = []
        self.busy: set[str] = set()
        self.most_busy = 0
        self.controller = Controller(
            "Thing", self.reconcile, on_error=self._on_error, guard=lambda: self.open, clock=now, **options
        )

    def _on_error(self, kind: str, name: str, error: UllageError) -> None:
        self.errors.append((kind, name, error.message))

    async def reconcile(self, key: str) -> float | None:
        assert self.open, "work starts only while the guard is open"
        assert key not in self.busy, "a key is never reconciled twice at once"
        self.busy.add(key)
        self.most_busy = max(self.most_busy, len(self.busy))
        self.starts[key].append(now())
        self.order.append(key)
        rest = self.script.get(key)
        outcome = rest.pop(0) if rest else FINE
        try:
            await asyncio.sleep(outcome.lasts_s)
        finally:
            self.busy.discard(key)
        self.ends[key].append((now(), outcome))
        if outcome.fails == "term":
            raise NotLeading("the term is over")
        if outcome.fails:
            raise Unreachable(outcome.fails)
        return outcome.again_s

    def check_calls_that_follow(self, key: str) -> None:
        for (ended, outcome), next_start in zip(self.ends[key], [*self.starts[key][1:], None], strict=True):
            if outcome.fails or outcome.again_s is not None:
                assert next_start is not None, "a key that fails, or wants to be called again, is called again"
            if outcome.fails == "lost":
                assert next_start is not None
                assert next_start - ended > FIRST_S - 1e-6

    async def work(self, seconds: float) -> None:
        """Run for so long."""
        work = asyncio.create_task(self.controller.run())
        await asyncio.sleep(seconds)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        assert work.cancelled()


def now() -> float:
    return asyncio.get_running_loop().time()


def bench_test(story: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a story in virtual time."""

    def test() -> None:
        run_virtual(story())

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


seconds = st.floats(0.0, 30.0)
outcomes = st.builds(
    Outcome, seconds, fails=st.sampled_from(["", "", "lost", "term"]), again_s=st.sampled_from([None, None, 0.5, 20.0])
)
adds = st.lists(st.tuples(seconds, st.sampled_from("abc"), st.sampled_from([0.0, 0.0, 5.0])), max_size=12)
switches = st.lists(seconds, max_size=6)


@settings(max_examples=300, deadline=None)
@given(
    script=st.dictionaries(st.sampled_from("abc"), st.lists(outcomes, max_size=5)),
    adds=adds,
    switches=switches,
    at_once=st.integers(1, 3),
)
def test_each_added_key_is_reconciled_afterwards_and_only_under_an_open_guard(
    script: dict[str, list[Outcome]], adds: list[tuple[float, str, float]], switches: list[float], at_once: int
) -> None:
    async def story() -> None:
        bench, added = Bench(script, at_once=at_once), defaultdict[str, list[float]](list)

        async def add_all() -> None:
            for pause_s, key, after_s in adds:
                await asyncio.sleep(pause_s)
                added[key].append(now())
                bench.controller.add(key, after_s)

        async def switch() -> None:
            for pause_s in switches:
                await asyncio.sleep(pause_s)
                bench.open = not bench.open
            bench.open = True

        await asyncio.gather(add_all(), switch(), bench.work(LONG_S))
        assert not len(bench.controller)
        assert bench.most_busy <= at_once
        for key, times in added.items():
            assert bench.starts[key][-1] >= times[-1], "each key is reconciled after it was last added"
        for key in bench.ends:
            bench.check_calls_that_follow(key)

    run_virtual(story())


@bench_test
async def test_keys_that_are_added_again_before_their_turn_are_reconciled_once_in_the_order_of_the_first() -> None:
    bench = Bench()
    for key in "abaab":
        bench.controller.add(key)
    await bench.work(1.0)
    assert bench.order == ["a", "b"]


@bench_test
async def test_a_key_that_is_added_meanwhile_is_reconciled_once_more() -> None:
    bench = Bench({"a": [Outcome(lasts_s=5.0)]}, at_once=4)
    bench.controller.add("a")

    async def add() -> None:
        await asyncio.sleep(1.0)
        for _ in range(3):
            bench.controller.add("a")

    await asyncio.gather(add(), bench.work(60.0))
    assert bench.starts["a"] == [0.0, 5.0]


@bench_test
async def test_the_earliest_wish_counts() -> None:
    bench = Bench({"a": [Outcome(again_s=100.0)]})
    bench.controller.add("a", 30.0)
    bench.controller.add("a", 10.0)
    bench.controller.add("a", 20.0)
    await bench.work(LONG_S)
    assert bench.starts["a"] == pytest.approx([10.0, 110.0])


@bench_test
async def test_the_pause_after_failures_doubles_up_to_a_bound_and_begins_again_after_a_success() -> None:
    failing = [Outcome(fails="lost")]
    bench = Bench({"a": failing * 6 + [FINE] + failing})
    bench.controller.add("a")
    bench.controller.add("a", 1000.0)
    await bench.work(500.0)
    starts = bench.starts["a"]
    assert [after - before for before, after in pairwise(starts)] == [1, 2, 4, 8, 10, 10]
    bench.controller.add("a")
    await bench.work(LONG_S)
    assert bench.starts["a"][7:] == [500.0, 501.0]


@bench_test
async def test_events_do_not_shorten_the_pause_of_a_key_that_fails_and_other_keys_go_on() -> None:
    bench = Bench({"a": [Outcome(fails="lost")] * 3})
    bench.controller.add("a")

    async def add() -> None:
        for _ in range(70):
            await asyncio.sleep(0.1)
            bench.controller.add("a")
            bench.controller.add("b")

    await asyncio.gather(add(), bench.work(60.0))
    assert bench.starts["a"][:4] == [0.0, 1.0, 3.0, 7.0]
    assert len(bench.starts["b"]) == 70


@bench_test
async def test_an_error_is_reported_when_it_first_occurs_and_when_it_changes() -> None:
    outcomes = [Outcome(fails=text) for text in ("lost", "lost", "full", "full", "lost")]
    bench = Bench({"a": [*outcomes, FINE, Outcome(fails="lost")]})
    bench.controller.add("a")
    await bench.work(100.0)
    bench.controller.add("a")
    await bench.work(100.0)
    assert bench.errors == [("Thing", "a", text) for text in ("lost", "full", "lost", "lost")]


@bench_test
async def test_the_loss_of_leadership_stops_work_before_the_next_key_and_is_no_error() -> None:
    bench = Bench({"a": [Outcome(lasts_s=1.0, fails="term")]})
    bench.controller.add("a")
    bench.controller.add("b")

    async def lose() -> None:
        await asyncio.sleep(0.5)
        bench.open = False
        await asyncio.sleep(99.5)
        assert bench.order == ["a"]
        bench.open = True

    await asyncio.gather(lose(), bench.work(200.0))
    assert sorted(bench.order) == ["a", "a", "b"]
    assert bench.errors == []


@bench_test
async def test_a_key_whose_call_is_cancelled_stays_in_the_queue() -> None:
    bench = Bench({"a": [Outcome(lasts_s=50.0)]})
    bench.controller.add("a")
    await bench.work(10.0)
    assert (len(bench.controller), bench.busy, bench.ends["a"]) == (1, set(), [])
    await bench.work(10.0)
    assert bench.starts["a"] == [0.0, 10.0]
    assert not len(bench.controller)


@bench_test
async def test_keys_keep_their_gap_and_so_many_are_reconciled_at_once() -> None:
    bench = Bench(gap_s=2.0)
    for key in "abc":
        bench.controller.add(key)
    await bench.work(10.0)
    assert [start for key in "abc" for start in bench.starts[key]] == [0.0, 2.0, 4.0]
    bench = Bench({key: [Outcome(lasts_s=5.0)] for key in "abc"}, at_once=2)
    for key in "abc":
        bench.controller.add(key)
    await bench.work(20.0)
    assert bench.most_busy == 2


@bench_test
async def test_a_drained_queue_has_called_each_key_once_due_or_not_and_none_without_leadership() -> None:
    bench = Bench({"a": [Outcome(again_s=0.0)], "b": [Outcome(fails="lost")]})
    bench.controller.add("a", 1000.0)
    bench.controller.add("b")
    bench.open = False
    await bench.controller.drain()
    assert bench.order == []
    bench.open = True
    await bench.controller.drain()
    assert bench.order == ["a", "b"]
    await bench.controller.drain()
    assert bench.order == ["a", "b", "a", "b"]
    assert not len(bench.controller)


@bench_test
async def test_an_unforeseen_error_ends_the_controller() -> None:
    async def broken(_key: str) -> float | None:
        raise ZeroDivisionError

    controller = Controller[str]("Thing", broken, clock=now)
    controller.add("a")
    with pytest.raises(ExceptionGroup) as caught:
        await controller.run()
    assert caught.group_contains(ZeroDivisionError)
