"""Which members of a gang with subgroups may start, against every choice of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from ullage.core.admitting.quorum import Quorum
from ullage.core.placing.decision import Refusal
from ullage.core.placing.draft import Misfit
from ullage.model.claim import Claim, GangClaim, Request, Subgroup
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement

Path = tuple[str, ...]
LEAVES: tuple[Path, ...] = (("a", "x"), ("a", "y"), ("b",), ("c",), ())
ONE = ResourceRequirement.from_string("gpu=1")

PARTS = st.fixed_dictionaries({name: st.integers(0, 2) for name in ("a", "x", "y", "b", "c")})
COUNTS = st.fixed_dictionaries({path: st.integers(0, 2) for path in LEAVES})


class World:
    """Members by subgroup: `a` has the subgroups `x` and `y`."""

    def __init__(self, parts: dict[str, int], required: int, outermost: int) -> None:
        self.parts, self.required, self.outermost = parts, required, outermost

    def claim(self, path: Path) -> GangClaim:
        subgroups = tuple(Subgroup(name, self.parts[name]) for name in path)
        return GangClaim("g", self.required, 99, subgroups=subgroups, required_subgroups=self.outermost)

    def requests(self, counts: dict[Path, int]) -> list[Request]:
        return [
            Request(f"{'-'.join(path)}{n}", ONE, Claim(gang=self.claim(path)))
            for path, count in counts.items()
            for n in range(count)
        ]

    def started(self, members: Iterable[Path]) -> dict[Path, bool]:
        """Return of each subgroup whether it has started with these members."""
        counts, leaf = Counter(members), {}
        for path in LEAVES[:-1]:
            leaf[path] = counts[path] >= self.parts[path[-1]]
        inside = [path for path in (("a", "x"), ("a", "y")) if self.parts[path[-1]] and leaf[path]]
        return leaf | {("a",): len(inside) >= self.parts["a"]}

    def valid(self, members: Sequence[Path]) -> bool:
        """Return whether a gang of these may run: it is complete, and has no part of a subgroup."""
        started = self.started(members)
        whole = all(started[path[:depth]] for path in members for depth in range(1, len(path) + 1))
        outermost = sum(started[(name,)] and self.parts[name] > 0 for name in "abc")
        return whole and outermost >= self.outermost and len(members) >= self.required


def paths(requests: Iterable[Request]) -> list[Path]:
    return [request.claim.gang.path for request in requests if request.claim.gang is not None]


@settings(max_examples=400)
@example(dict.fromkeys("axybc", 0), 1, 1, dict.fromkeys(LEAVES[:-1], 0) | {(): 1})
@given(PARTS, st.integers(1, 5), st.integers(0, 3), COUNTS)
def test_those_that_start_are_whole_and_as_few_as_suffice(parts, required, outermost, counts):
    world = World(parts, required, outermost)
    waiting = world.requests(counts)
    possible = [
        chosen
        for size in range(len(waiting) + 1)
        for chosen in combinations(paths(waiting), size)
        if world.valid(chosen)
    ]
    quorum = Quorum(world.claim(()), [], waiting)
    least = quorum.least()
    if not possible:
        event("too few")
        assert least is None or not world.valid(paths(least))
        assert quorum.lack is not None or least is None
        return
    event("enough")
    assert least is not None
    assert quorum.lack is None
    assert world.valid(paths(least))
    if required == 1 and outermost:
        assert len(least) == len(possible[0])
    every = paths(quorum.every())
    assert world.valid(every)
    assert len(every) == max(map(len, possible))
    after = Quorum(
        world.claim(()), [world.claim(path) for path in paths(least)], [r for r in waiting if r not in least]
    )
    assert after.complete
    for unit in after.further():
        assert world.valid([*paths(least), *paths(unit)])


@pytest.mark.parametrize("least", [0, 1])
def test_a_subgroup_without_room_is_left_out_until_too_few_are_left(least):
    world = World({"a": 0, "x": 0, "y": 0, "b": least, "c": least}, 1, least)
    quorum = Quorum(world.claim(()), [], world.requests({("b",): 1, ("c",): 1}))
    refused = Refusal((Rejection(Code.GANG_ROOM, Cure.CAPACITY),))
    tried = list[str]()

    def nowhere(requests: Sequence[Request]) -> Misfit:
        assert len(tried) < 2, "each once"
        tried.extend(request.uid for request in requests)
        return Misfit(requests[0].uid, refused, 0)

    assert quorum.fit_least(nowhere) == Misfit("b0", refused, 0), "the first reason"
    assert tried == ["b0", "c0"]
