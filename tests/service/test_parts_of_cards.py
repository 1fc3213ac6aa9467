"""Sessions that ask for parts of cards, from the request to the launch order and the reason."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from tests.lab import Lab, a_node

from ullage.model.allocation import Charge
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import Isolation
from ullage.model.quantity import PPM
from ullage.model.queue import Queue
from ullage.model.rejection import Code, Cure
from ullage.server.answers import Answers
from ullage.wire.node import GpuBody
from ullage.wire.overview import ServerBody

GIB = 1 << 30
SERVER = ServerBody(version="1", epoch=1, started_at=0.0, home="", storage="", isolation="", policy={})


def a_card(**facts: object) -> Node:
    """A node with one card of 40 GiB and 19.5 TFLOPS."""
    known = {"vram_bytes": 40 * GIB, "compute_gflops": 19_500, **facts}
    return Node("n1", 8000, 64 * GIB, (Gpu("GPU-n1-0", 0, **known),))


def the_card(lab: Lab) -> GpuBody:
    (card,) = Answers(lab.service, SERVER, {}).snapshot().gpus()
    return card


def held(lab: Lab) -> dict[str | None, float]:
    return {holder.session: holder.fraction for holder in the_card(lab).holders}


def test_two_halves_share_a_card():
    with Lab(a_node(gpus=1)) as lab:
        lab.session("ann", "cpu=1,gpu=0.5", tasks=1)
        lab.session("bob", "cpu=1,gpu=0.5", tasks=1)
        assert (lab.held("ann"), lab.held("bob")) == (1, 1)
        assert held(lab) == {"ann": 0.5, "bob": 0.5}
        assert the_card(lab).free.fraction == 0


def test_three_thirds_share_a_card_and_a_fourth_waits():
    with Lab(a_node(gpus=1)) as lab:
        for name in ("a", "b", "c", "d"):
            lab.session(name, "gpu=0.3333", tasks=1)
        assert [lab.held(name) for name in ("a", "b", "c", "d")] == [1, 1, 1, 0]
        assert the_card(lab).free.fraction == pytest.approx(0.0001)
        lab.finish("b")
        lab.service.sessions.close("b", lambda: None)
        lab.pump()
        assert lab.held("d") == 1


@pytest.mark.parametrize("third", ["gpu=0.333333", "percent=33.3333", "tflops=6.5"])
def test_three_thirds_of_a_card_are_shown_as_no_more_than_the_card(third: str):
    with Lab(a_card(), queues=[Queue("team"), Queue("ann", "team"), Queue("bob", "team")]) as lab:
        lab.session("a", third, tasks=2, queue="ann")
        lab.session("b", third, tasks=1, queue="bob")
        answers = Answers(lab.service, SERVER, {})
        shares = {queue.name: queue.share for queue in answers.queues()}
        one = Fraction(1, 3) if third == "tflops=6.5" else Fraction(333_333, 1_000_000)
        assert shares == {"default": 0.0, "team": float(3 * one), "ann": float(2 * one), "bob": float(one)}
        assert {session.id: session.share for session in answers.sessions(lab.service.state.sessions.values())()} == {
            "a": float(2 * one),
            "b": float(one),
        }
        assert lab.why("a").share == float(2 * one)
        assert {queue.name: queue.held.gpu_milli for queue in answers.queues()}["team"] == 1000


def test_amounts_above_a_card_do_not_fit_and_why_names_card_and_amounts():
    with Lab(a_node(gpus=1)) as lab:
        lab.session("large", "gpu=0.6", tasks=1)
        lab.session("late", "gpu=0.5", tasks=1)
        assert (lab.held("large"), lab.held("late")) == (1, 0)
        reasons = lab.why("late")
        assert reasons.summary.endswith("it needs 0.5 of a card, the best card (GPU-n1-0 on n1) has free 0.4")
        (rejection,) = reasons.rejections
        assert (rejection.code, rejection.gpu) == (Code.GPU_SHARE, "GPU-n1-0")
        assert (rejection.needed, rejection.had) == (PPM // 2, PPM * 4 // 10)
        assert [holder.session for holder in reasons.holders] == ["large"]
        assert reasons.suggestions[0] == "cpu=0,mem=0,gpu=0.4 would fit now"


def test_a_part_and_a_whole_card_never_share():
    with Lab(a_node(gpus=1)) as lab:
        lab.session("part", "gpu=0.1", tasks=1)
        lab.session("whole", "gpu=1", tasks=1)
        assert (lab.held("part"), lab.held("whole")) == (1, 0)
    with Lab(a_node(gpus=1)) as lab:
        lab.session("whole", "gpu=1", tasks=1)
        lab.session("part", "gpu=0.1", tasks=1)
        assert (lab.held("part"), lab.held("whole")) == (0, 1)


def test_a_card_of_unknown_capacity_takes_fractions_and_refuses_amounts():
    with Lab(a_node(gpus=1)) as lab:
        lab.session("amount", "vram=10g", tasks=1)
        lab.session("fraction", "gpu=0.5", tasks=1)
        assert (lab.held("amount"), lab.held("fraction")) == (0, 1)
        reasons = lab.why("amount")
        assert [(r.code, r.cure) for r in reasons.rejections] == [(Code.CAPACITY_UNKNOWN, Cure.NODE_CHANGE)]
        assert reasons.summary.startswith("no node can take it: the capacity of the card is not known")
        (holder,) = the_card(lab).holders
        assert (holder.fraction, holder.vram_bytes, holder.compute_gflops) == (0.5, None, None)


def test_amounts_are_shown_in_their_units_and_what_is_short_is_named():
    with Lab(a_card()) as lab:
        lab.session("first", "vram=30g,tflops=5", tasks=1, owner="ann")
        lab.session("second", "vram=20g", tasks=1)
        card = the_card(lab)
        (holder,) = card.holders
        assert (holder.session, holder.owner, holder.isolation) == ("first", "ann", "soft")
        assert (holder.fraction, holder.vram_bytes, holder.compute_gflops) == (0.75, 30 * GIB, 5000)
        assert (card.free.fraction, card.free.vram_bytes, card.free.compute_gflops) == (0.25, 10 * GIB, 14_500)
        why = lab.why("second").summary
        assert "it needs 20Gi vram, the best card (GPU-n1-0 on n1) has free 10Gi" in why


def test_more_than_any_card_has_is_compared_with_what_it_has_not_with_what_is_free():
    with Lab(a_card()) as lab:
        lab.session("first", "vram=30g", tasks=1)
        lab.session("huge", "vram=50g", tasks=1)
        assert "it needs 50Gi vram, the best card (GPU-n1-0 on n1) has 40Gi" in lab.why("huge").summary


@pytest.mark.parametrize("mode", ["hard", "partitioned"])
def test_isolation_that_a_card_does_not_offer_is_refused_with_that_reason(mode: str):
    with Lab(a_card(isolations=frozenset({Isolation.SOFT}))) as lab:
        lab.session("kept", f"gpu=0.5,isolation={mode}" if mode == "hard" else f"isolation={mode}", tasks=1)
        reasons = lab.why("kept")
        assert lab.held("kept") == 0
        assert [r.code for r in reasons.rejections] == [Code.ISOLATION_UNSUPPORTED]
        assert reasons.summary == "no node can take it: the card cannot keep its users apart in this way"


def test_the_launch_order_has_the_grant_of_each_card():
    node = Node("n1", 8000, 64 * GIB, tuple(Gpu(f"GPU-{n}", n, vram_bytes=40 * GIB) for n in range(2)))
    with Lab(node) as lab:
        lab.session("two", "gpu=2,vram=10g", tasks=1)
        lab.session("whole", "gpu=1", tasks=1)
        (order,) = lab.engine.launched
        assert [gpu.uuid for gpu in order.gpus] == ["GPU-0", "GPU-1"]
        assert order.charges == (Charge(0, 10 * GIB), Charge(0, 10 * GIB))
        lab.finish("two")
        lab.service.sessions.close("two", lambda: None)
        lab.pump()
        assert [order.charges for order in lab.engine.launched[1:]] == [()]


def test_the_usage_of_a_node_is_the_sum_of_its_cards():
    with Lab(a_node(gpus=2)) as lab:
        answers = Answers(lab.service, SERVER, {})
        for name in ("a", "b", "c"):
            lab.session(name, "gpu=0.3333", tasks=1)
        (node,) = answers.snapshot().nodes()
        assert (node.held.gpu_milli, node.allocatable.gpu_milli) == (1000, 2000)
        lab.session("whole", "gpu=1", tasks=1)
        (node,) = answers.snapshot().nodes()
        assert node.held.gpu_milli == 2000


def test_a_session_that_has_all_it_asked_for_waits_for_nothing_on_a_cordoned_node():
    with Lab(a_node(gpus=1)) as lab:
        lab.session("a", "gpu=1", tasks=1)
        lab.service.nodes.cordon("n1", True, lambda: None)
        (session,) = Answers(lab.service, SERVER, {}).sessions(lab.service.state.sessions.values())()
        assert (session.running, session.reason) == (1, None)
        assert lab.why("a").code is not Code.TOO_LARGE


def test_a_cordoned_node_that_is_large_enough_makes_no_request_unplaceable():
    with Lab(a_node(gpus=2), a_node("n2", gpus=1)) as lab:
        lab.session("runs", "gpu=2", tasks=2)
        lab.service.nodes.cordon("n1", True, lambda: None)
        lab.session("waits", "gpu=2", tasks=1)
        lab.session("idle", "gpu=2")
        lab.session("large", "gpu=3", tasks=1)
        bodies = Answers(lab.service, SERVER, {}).sessions(lab.service.state.sessions.values())()
        found = {body.id: (body.activity, body.reason) for body in bodies}
        assert found == {
            "runs": ("running", "no-nodes"),
            "waits": ("pending", "no-nodes"),
            "idle": ("idle", "no-nodes"),
            "large": ("pending", "unplaceable"),
        }
        assert {name: lab.why(name).code for name in found} == {name: reason for name, (_, reason) in found.items()}


def test_too_few_suitable_cards_are_counted_and_not_what_the_others_lack():
    cards = tuple(
        Gpu(f"g{number}", number, model, "NVIDIA", 40 * GIB) for number, model in enumerate(("A100", "A100", "H100"))
    )
    with Lab(Node("n1", 8000, 64 * GIB, cards)) as lab:
        lab.session("half", "gpu=0.5,gpu_index=0", tasks=1)
        lab.session("wide", "gpu=3,vram=39g", tasks=1)
        lab.session("model", "gpu=2,gpu_model=H100", tasks=1)
        lab.session("full", "vram=39g,gpu_index=0", tasks=1)
        wide, model, full = (lab.why(name) for name in ("wide", "model", "full"))
        assert (wide.code, model.code, full.code) == (Code.GPU, Code.TOO_LARGE, Code.GPU)
        assert wide.summary == (
            "no node has enough free GPUs: the node has too few suitable cards: it needs 3, n1 has 2"
        )
        assert [holder.session for holder in wide.holders] == ["half"]
        assert model.summary == "no node can take it: the node has too few suitable cards: it needs 2, n1 has 1"
        assert full.summary.endswith("it needs 39Gi vram, the best card (g0 on n1) has free 20Gi")


def test_what_a_broken_card_holds_is_not_held_of_what_its_node_offers():
    cards = tuple(Gpu(f"g{number}", number, "A100", "NVIDIA", 40 * GIB) for number in range(2))
    with Lab(Node("n1", 8000, 64 * GIB, cards)) as lab:
        lab.session("works", "gpu=1,gpu_index=0", tasks=1)
        (node,) = Answers(lab.service, SERVER, {}).snapshot().nodes()
        assert (node.allocatable.gpu_milli, node.held.gpu_milli) == (2000, 1000)
        broken = Node("n1", 8000, 64 * GIB, (replace(cards[0], healthy=False), cards[1]))
        lab.service.nodes.heartbeat(broken)
        (node,) = Answers(lab.service, SERVER, {}).snapshot().nodes()
        assert (node.allocatable.gpu_milli, node.held.gpu_milli) == (1000, 0)
