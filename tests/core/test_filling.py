"""Progressive filling over a tree against a slow oracle, and shares compared exactly."""

from __future__ import annotations

import random
from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.core.kernel.exact import Share, compare, cut
from ullage.core.placing.policy import Order
from ullage.core.sharing.shares import Leaf, ShareTree
from ullage.model.queue import ROOT, Limit, Queue
from ullage.model.rejection import Code
from ullage.model.resources import Resources

pytestmark = pytest.mark.timeout(900)

# --- exact ----------------------------------------------------------------------------------------

amounts = st.integers(0, 2**61) | st.integers(0, 100) | st.integers(2**53 - 5, 2**53 + 5)
totals = st.integers(1, 2**61) | st.integers(1, 100)
weights = st.integers(1, 1000)


def sign(number):
    return (number > 0) - (number < 0)


@pytest.mark.long
@settings(max_examples=3000)
@given(amounts, totals, weights, amounts, totals, weights, st.integers(1, 1000))
def test_shares_are_compared_as_fractions_are(used, total, weight, used2, total2, weight2, times):
    assert compare(Share(used, total, weight), Share(used2, total2, weight2)) == sign(
        Fraction(used, total * weight) - Fraction(used2, total2 * weight2)
    )
    if used * times <= 2**61 and total * times <= 2**61:
        assert compare(Share(used, total, weight), Share(used * times, total * times, weight)) == 0
        assert compare(Share(used + 1, total, weight), Share(used * times, total * times, weight)) == 1


def test_what_is_held_of_nothing_is_beyond_every_share_and_equal_to_its_like():
    assert compare(Share(5, 1, 1), Share(1, 0, 1000)) == -1
    assert compare(Share(1, 0, 1000), Share(5, 1, 1)) == 1
    assert compare(Share(1, 0, 1), Share(1, 0, 2)) == 0


@pytest.mark.long
@settings(max_examples=3000)
@given(amounts, amounts, totals, weights, amounts, totals, weights)
def test_a_cut_is_rounded_down_exactly(amount, used, total, weight, used2, total2, weight2):
    small, large = sorted(((used, total, weight), (used2, total2, weight2)), key=lambda s: Fraction(s[0], s[1] * s[2]))
    if large[0]:
        level, share = (Fraction(u, t * w) for u, t, w in (small, large))
        assert cut(amount, Share(*small), Share(*large)) == amount * level // share
    assert cut(amount, Share(*small), Share(1, 0, 1)) == 0


# --- the oracle -----------------------------------------------------------------------------------


class SlowTree:
    """The rule as `core/sharing/shares.py` states it: fractions, and everything computed again before every unit."""

    def __init__(self, total, queues, leaves, order, free):
        self.total, self.order, self.free = total, order, list(free)
        self.queues = {queue.name: queue for queue in queues}
        self.leaves = leaves
        self.held = {leaf.session: 0 for leaf in leaves}
        self.stopped = dict.fromkeys(self.held)
        self.full = set()

    def share(self, amounts, weight):
        largest = Fraction(0)
        for amount, whole in zip(amounts, self.total, strict=True):
            if amount and not whole:
                return Fraction(10**30)
            largest = max(largest, Fraction(amount, whole or 1))
        return largest / weight

    def line(self, queue):
        while queue != ROOT:
            yield queue
            queue = self.queues[queue].parent
        yield ROOT

    def usage(self, queue):
        return [
            sum(leaf.unit[d] * self.held[leaf.session] for leaf in self.leaves if queue in self.line(leaf.queue))
            for d in range(3)
        ]

    def over_limit(self, leaf):
        for name in self.line(leaf.queue):
            if name != ROOT:
                limit = self.queues[name].limit
                most = (limit.cpu_milli, limit.memory_bytes, limit.gpu_milli)
                after = [u + a for u, a in zip(self.usage(name), leaf.unit, strict=True)]
                if any(m is not None and a > m for a, m in zip(after, most, strict=True)):
                    return True
        return False

    def guaranteed(self, leaf):
        for name in self.line(leaf.queue):
            if name != ROOT:
                named = [
                    (u, a, g)
                    for u, a, g in zip(self.usage(name), leaf.unit, self.queues[name].guarantee, strict=True)
                    if g
                ]
                if any(a for _, a, _ in named) and all(u + a <= g for u, a, g in named):
                    return True
        return False

    def run(self):
        for leaf in sorted(self.leaves, key=lambda leaf: (-leaf.priority, leaf.number, leaf.session)):
            while self.held[leaf.session] < min(leaf.floor, leaf.target) and self.give(leaf):
                pass
        if any(any(queue.guarantee) for queue in self.queues.values()):
            self.fill(self.guaranteed)
        self.fill(lambda _leaf: True)
        return self.held

    def give(self, leaf):
        if self.over_limit(leaf):
            self.stopped[leaf.session] = "limit"
        elif leaf.shape in self.full or any(a > f for a, f in zip(leaf.unit, self.free, strict=True)):
            self.stopped[leaf.session] = "room"
            self.full.add(leaf.shape)
        else:
            self.stopped[leaf.session] = None
            self.held[leaf.session] += 1
            self.free = [f - a for f, a in zip(self.free, leaf.unit, strict=True)]
            return True
        return False

    def fill(self, eligible):
        """What a leaf that is not eligible, or stopped without anything held, changes lasts as long as this does."""
        self.passed, self.dry = set(), set()
        while True:
            for leaf in self.leaves:
                room = all(a <= f for a, f in zip(leaf.unit, self.free, strict=True))
                if self.wants(leaf) and (leaf.shape in self.full or not room):
                    self.stopped[leaf.session] = "limit" if self.over_limit(leaf) else "room"
            if not self.grows(ROOT):
                return
            name = ROOT
            while name in (ROOT, *self.queues):
                name = min(self.children(name), key=self.key)
            leaf = next(leaf for leaf in self.leaves if leaf.session == name)
            if not eligible(leaf):
                self.passed.add(name)
            else:
                self.give(leaf)

    def wants(self, leaf):
        return self.held[leaf.session] < leaf.target and not self.stopped[leaf.session]

    def children(self, queue):
        """Those that can grow."""
        leaves = [leaf.session for leaf in self.leaves if leaf.queue == queue]
        below = [name for name, other in self.queues.items() if other.parent == queue]
        return [name for name in leaves + below if self.grows(name)]

    def grows(self, name):
        if name in (ROOT, *self.queues):
            return bool(self.children(name))
        leaf = next(leaf for leaf in self.leaves if leaf.session == name)
        return self.wants(leaf) and name not in self.passed

    def saturated(self, name):
        if name in self.queues:
            below = [leaf.session for leaf in self.leaves if leaf.queue == name]
            below += [other.name for other in self.queues.values() if other.parent == name]
            return not self.grows(name) and any(self.saturated(child) for child in below)
        return self.stopped[name] == "room" and self.held[name] > 0

    def counted(self, name):
        """A leaf's holding; a queue's children, those that ran out of room at most at the level of who is next."""
        if name not in self.queues and name != ROOT:
            leaf = next(leaf for leaf in self.leaves if leaf.session == name)
            return [a * self.held[name] for a in leaf.unit]
        below = [leaf.session for leaf in self.leaves if leaf.queue == name]
        below += [other.name for other in self.queues.values() if other.parent == name]
        growing = self.children(name)
        level = self.level(min(growing, key=self.key)) if growing else None
        total = [0, 0, 0]
        for child in below:
            amounts, share = self.counted(child), self.level(child)
            if level is not None and self.saturated(child) and share > level:
                amounts = [amount * level // share for amount in amounts]
            total = [t + a for t, a in zip(total, amounts, strict=True)]
        return total

    def level(self, name):
        return self.share(self.counted(name), self.weight(name))

    def weight(self, name):
        if name in self.queues:
            return self.queues[name].weight
        return next(leaf.weight for leaf in self.leaves if leaf.session == name)

    def key(self, name):
        if name in self.queues:
            return (0, self.level(name), self.oldest(name), name)
        leaf = next(leaf for leaf in self.leaves if leaf.session == name)
        return (-leaf.priority, 0 if self.order is Order.FIFO else self.level(name), leaf.number, name)

    def oldest(self, name):
        return self.key(min(self.children(name), key=self.key))[2]


@st.composite
def trees(draw):
    total = Resources(
        draw(st.sampled_from([0, 1000, 30_000])),
        draw(st.sampled_from([7, 64, 2**55 + 1])),
        draw(st.sampled_from([1000, 4000, 6001])),
    )
    queues = []
    for n in range(draw(st.integers(1, 4))):
        parent = draw(st.sampled_from([ROOT, ROOT, *(queue.name for queue in queues)]))
        limit = Limit(*(draw(st.sampled_from([None, None, None, whole // 2])) for whole in total))
        guarantee = Resources(*(draw(st.sampled_from([0, 0, 0, whole // 3])) for whole in total))
        queues.append(Queue(f"q{n}", parent, draw(st.integers(1, 3)), guarantee, limit))
    units = []
    for _ in range(draw(st.integers(2, 4))):
        asked = draw(st.sampled_from([(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)]))
        parts = [draw(st.sampled_from([2, 3, 7, 12])) for _ in total]
        units.append(
            tuple(max(1, w // p) if d in asked else 0 for d, (w, p) in enumerate(zip(total, parts, strict=True)))
        )
    leaves = []
    for n in range(draw(st.integers(2, 7))):
        unit = draw(st.sampled_from(units))
        leaves.append(
            SimpleNamespace(
                session=f"s{n}",
                queue=draw(st.sampled_from([ROOT, *(queue.name for queue in queues)])),
                unit=unit,
                priority=draw(st.sampled_from([0, 0, 5])),
                weight=draw(st.sampled_from([1, 1, 2, 7])),
                number=draw(st.integers(0, 3)),
                target=draw(st.integers(0, 12)),
                floor=draw(st.sampled_from([0, 0, 0, 2])),
                shape=unit,
            )
        )
    return total, queues, leaves, draw(st.sampled_from([Order.DRF, Order.DRF, Order.FIFO]))


def filled(total, queues, leaves, order):
    free = list(total)

    def fits(leaf):
        return all(asked <= left for asked, left in zip(leaf.unit, free, strict=True))

    def grant(leaf):
        if not fits(leaf):
            return Code.GPU
        for dimension, asked in enumerate(leaf.unit):
            free[dimension] -= asked
        return None

    tree = ShareTree(total, queues, [Leaf(**vars(leaf)) for leaf in leaves], order)
    tree.fill_floors(grant, same_shape=True)
    tree.fill_guarantees(grant, fits, same_shape=True)
    tree.fill(grant, fits, same_shape=True)
    return tree.executors()


@pytest.mark.long
@settings(max_examples=1500)
@given(trees())
def test_filling_a_tree_equals_the_slow_oracle(case):
    total, queues, leaves, order = case
    assert filled(*case) == SlowTree(total, queues, leaves, order, total).run()


# --- what Python says to the rule -----------------------------------------------------------------

CPU = (1000, 0, 0)


def a_tree(*leaves, queues=(Queue("a"), Queue("b")), **more):
    return ShareTree(Resources(cpu_milli=8000), queues, leaves, **more)


def granting(units, asked):
    """Room for so many units; notes who asked."""

    def grant(leaf):
        asked.append(leaf.session)
        return None if len(asked) <= units else Code.CPU

    return grant


def test_a_shape_that_found_no_room_is_asked_about_once():
    leaves = [Leaf(f"s{n}", "ab"[n % 2], CPU, number=n, target=3, shape="cpu") for n in range(6)]
    tree, asked = a_tree(*leaves), []
    tree.fill(granting(2, asked), same_shape=True)
    assert asked == ["s0", "s1", "s2"]
    assert {leaf.stopped for leaf in leaves} == {Code.CPU}
    tree.renew()
    assert {leaf.stopped for leaf in leaves} == {None}
    tree.fill(granting(1, asked := []), same_shape=True)
    assert asked == ["s2", "s3"], "the two that hold one come after those that hold none"


def test_what_leaves_counts_against_limits_until_it_is_gone_and_never_as_a_share():
    leaf = Leaf("s", "a", CPU, held=3, target=9)
    other = Leaf("t", "b", CPU, number=1, target=9)
    tree = a_tree(leaf, other, queues=(Queue("a", limit=Limit(cpu_milli=3000)), Queue("b")))
    tree.take(leaf, 2)
    assert (leaf.held, leaf.leaving, tree.usage("a"), tree.usage(ROOT)) == (1, 2, CPU, CPU)
    assert tree.over_limit(leaf) is Code.QUEUE_LIMIT
    assert tree.over_limit(leaf, leaving=False) is None


def test_a_limit_may_be_answered_with_a_promise():
    leaf = Leaf("s", "a", CPU, target=3)
    tree, reported = a_tree(leaf, queues=(Queue("a", limit=Limit(cpu_milli=1000)), Queue("b"))), []

    def beyond(stopped, code):
        reported.append((stopped.held, code))
        return None if len(reported) == 1 else code

    tree.fill(lambda _leaf: None, beyond=beyond)
    assert reported == [(1, Code.QUEUE_LIMIT), (2, Code.QUEUE_LIMIT)]
    assert (leaf.held, leaf.stopped) == (2, Code.QUEUE_LIMIT)


def test_units_that_are_sessions_of_their_own_count_in_the_queue_and_go_by_age():
    """Each of the four of `a` is a session that wants one unit: as many leaves of target 1 would be served so."""
    old, young = (Leaf(n, "a", CPU, number=n == "young", target=2, apart=True, shape=n) for n in ("old", "young"))
    other = Leaf("other", "b", CPU, number=9, target=2)
    tree, served = a_tree(old, young, other), []
    tree.fill(lambda leaf: served.append(leaf.session))
    assert served == ["old", "other", "old", "other", "young", "young"]
    assert (old.held, old.target, tree.usage("a")) == (0, 0, (4000, 0, 0))
    tree.free(old)
    assert tree.usage("a") == (3000, 0, 0)


def answers():
    """What fills of fixed trees give, for the comparison with the compiler off."""
    draw, found = random.Random(5), []
    for _ in range(20):
        total = Resources(30_000, 2**55 + 1, 6001)
        queues = [Queue(f"q{n}", ROOT if n < 2 else f"q{n - 2}", 1 + n % 3) for n in range(4)]
        units = [tuple(max(1, whole // draw.randrange(2, 12)) * draw.randrange(2) for whole in total) for _ in range(3)]
        leaves = [
            SimpleNamespace(
                session=f"s{n}", queue=f"q{n % 4}", unit=(unit := units[n % 3]), number=n, target=9, shape=unit
            )
            for n in range(9)
        ]
        found.append(filled(total, queues, leaves, Order.DRF))
    return found
