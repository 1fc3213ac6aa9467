"""What `why` suggests is done as it says: the request is opened, and starts."""

import random

import pytest
from tests.lab import Lab, a_node

from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.queue import Limit, Queue

GIB = 2**30
NOW, HERE = " would fit now", " can run here"


def suggested(lab: Lab, name: str, ending: str) -> list[str]:
    return [text.removesuffix(ending) for text in lab.why(name).suggestions if text.endswith(ending)]


def test_room_that_is_collected_for_another_is_not_suggested():
    with Lab(a_node(cpu=4)) as lab:
        lab.session("runs", "cpu=1", tasks=4)
        lab.session("first", "cpu=2", tasks=1)
        lab.finish("runs")
        assert lab.why("first").code == "waiting-for-reclaim"
        assert suggested(lab, "first", NOW) == ["cpu=1,mem=0,gpu=0"]  # in place of itself
        lab.session("late", "cpu=2", tasks=1)
        assert not lab.held("late")
        assert suggested(lab, "late", NOW) == []


def test_a_request_that_fits_a_node_is_suggested_within_the_limits_of_its_queue():
    with Lab(a_node(cpu=8), queues=(Queue("default"), Queue("small", limit=Limit(cpu_milli=2000)))) as lab:
        lab.session("large", "cpu=16", tasks=1, queue="small")
        assert lab.why("large").code == "unplaceable"
        (smaller,) = suggested(lab, "large", HERE)
        lab.service.sessions.cancel("large", lambda: None)
        lab.session("cut", smaller, tasks=1, queue="small")
        assert lab.held("cut") == 1


def some_nodes(rng: random.Random) -> list[Node]:
    def cards(name: str) -> tuple[Gpu, ...]:
        return tuple(
            Gpu(f"{name}-{index}", index, vram_bytes=rng.choice((4, 8)) * GIB) for index in range(rng.randint(0, 4))
        )

    return [
        Node(name, rng.choice((2, 4, 8)) * 1000, rng.choice((4, 8)) * GIB, cards(name))
        for name in ("a", "b")[: rng.randint(1, 2)]
    ]


def crowded(seed: int) -> Lab:
    """Return a lab with sessions of two owners, most of which wait."""
    rng = random.Random(seed)
    lab = Lab(*some_nodes(rng))
    for number in range(rng.randint(4, 8)):
        lab.now += rng.choice((0, 1, 400))
        cpu, kind = rng.choice((0.5, 1, 2, 3)), rng.choice(("", ",gpu=1", ",gpu=2", ",gpu=0.5", ",vram=3g", ",mem=3g"))
        lab.session(f"s{number}", f"cpu={cpu}{kind}", tasks=rng.randint(1, 3), owner=rng.choice(("ann", "bob")))
    return lab


@pytest.mark.parametrize("seed", range(25, 35))
def test_what_would_fit_now_starts_when_it_takes_the_place_of_what_waits(seed):
    with crowded(seed) as lab:
        waiting = [name for name in lab.service.state.sessions if not lab.held(name)]
        found = {name: smaller for name in waiting for smaller in suggested(lab, name, NOW)}
    for name, smaller in found.items():
        with crowded(seed) as lab:
            owner = lab.service.state.session(name).session.spec.owner
            lab.service.sessions.cancel(name, lambda: None)
            lab.session("smaller", smaller, tasks=3, owner=owner)
            assert lab.held("smaller"), (name, smaller)
