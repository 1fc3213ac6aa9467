"""A front that starts again finds who waits, for how long, and what for, from pods alone."""

from __future__ import annotations

import random

import pytest
from tests.service.test_gates import World, machine, pod

from ullage.model.rejection import Code


def stand(world: World) -> dict[str, tuple[str, int, Code | None, bool]]:
    """Return per pod its queue, its place there, why it waits, and whether room is kept for it."""
    return {
        uid: (each.queue, each.position, each.refusal and each.refusal.code, bool(each.reserved))
        for uid, each in world.gates.standings().items()
    }


@pytest.mark.parametrize("seed", range(20))
def test_a_restart_at_any_point_changes_neither_waiting_requests_nor_their_reasons(seed: int) -> None:
    rng = random.Random(seed)
    world = World(machine("a", 4), machine("b", 2))
    reserved = False
    for number in range(40):
        world.clock.now += rng.choice((0.0, 10.0, 200.0))
        if rng.random() < 0.6 or not world.bound:
            asked = rng.choice((1, 1, 2, 4))
            priority = rng.choice((0, 0, 1))
            world.come(pod(f"p{number:02}", asked, rng.choice("xy"), created_at=world.clock.now, priority=priority))
        else:
            world.end(rng.choice(sorted(world.bound)))
        world.go()
        world.step()
        before = stand(world), world.gates.places()
        reserved |= any(each[-1] for each in before[0].values())
        if rng.random() < 0.3:
            world.restart()
            world.step()
            assert (stand(world), world.gates.places()) == before
    assert reserved
