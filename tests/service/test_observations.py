"""What nodes show is stored, reported, and counted; what is decided afterwards goes by it, over a restart too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.core.zones import machine
from tests.lab import Lab, Machine

from ullage.core.books.observation import LAG_S, foreign_id
from ullage.core.placing.decision import Refusal
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.error import NotFound
from ullage.model.holding import Holding, PodHolding, Use
from ullage.model.request import ResourceRequirement
from ullage.server.answers import Answers
from ullage.server.metrics import page

pytestmark = pytest.mark.timeout(900)
NODE = machine(cpus=(8, 8))


@pytest.fixture
def lab(tmp_path) -> Iterator[Machine]:
    with Machine(str(tmp_path / "state.db"), NODE) as made:
        yield made


def alloc(lab: Lab, uid: str, text: str = "gpu=4") -> Allocation | Refusal:
    asked = Request(uid, ResourceRequirement.from_string(text), Claim("team", pod=uid))
    outcome = lab.service.allocations.alloc(asked, lambda: None)
    lab.pump()
    return outcome


def show(lab: Lab, **pods: str) -> None:
    """Pods by name, each with the numbers of its cards."""
    use = Use(
        tuple(
            PodHolding("team", name, "", (Holding("main", devices=(("gpu", tuple(f"n-g{k}" for k in text)),)),))
            for name, text in pods.items()
        )
    )
    lab.service.observations.observed("n", use)
    lab.pump()


def events(lab: Lab, kind: str) -> list[dict[str, object]]:
    return [event.data | {"message": event.message} for event in lab.service.events.recent if event.kind == kind]


def metrics(lab: Lab) -> list[str]:
    return page(lab.service, Answers(lab.service, None, {}))().decode().splitlines()


def test_a_mismatch_is_corrected_stored_reported_and_counted_once(lab):
    alloc(lab, "a")
    show(lab, a="4567")
    show(lab, a="4567")
    (reported,) = events(lab, "allocation.mismatch")
    assert (reported["uid"], reported["resource"]) == ("a", "gpu")
    assert (reported["bound"], reported["shown"]) == ("n-g0 n-g1 n-g2 n-g3", "n-g4 n-g5 n-g6 n-g7")
    assert "ullage_placement_mismatches_total 1.0" in metrics(lab)
    lab.restart()
    held = lab.service.allocations.get("a")
    assert held.observed
    assert held.gpus == ("n-g4", "n-g5", "n-g6", "n-g7")
    assert alloc(lab, "b").gpus == ("n-g0", "n-g1", "n-g2", "n-g3")


def test_cards_of_unknown_owners_are_free_only_once_they_are_gone(lab):
    show(lab, other="01234")
    (reported,) = events(lab, "node.unknown-owners")
    assert (reported["message"], reported["gpus"]) == ("team/other", "n-g0 n-g1 n-g2 n-g3 n-g4")
    assert 'ullage_foreign_gpus{node="n"} 5.0' in metrics(lab)
    body = Answers(lab.service, None, {}).node(lab.service.state.nodes["n"])
    assert (body.strangers, body.observed_at) == (["team/other"], lab.now)
    lab.restart()
    assert isinstance(alloc(lab, "a"), Refusal)
    assert alloc(lab, "b", "gpu=3").gpus == ("n-g5", "n-g6", "n-g7")
    show(lab)
    assert alloc(lab, "a", "gpu=5").gpus == ("n-g0", "n-g1", "n-g2", "n-g3", "n-g4")
    lab.restart()
    assert foreign_id("n") not in lab.service.state.fleet.ledger


def test_sessions_have_no_share_of_resources_of_unknown_owners(lab):
    show(lab, other="012345")
    lab.session("s", "gpu=1", tasks=8)
    assert (lab.held("s"), lab.deserved("s")) == (2, 2)
    holders = lab.why("s").holders
    assert [(each.session, each.amount.gpu_milli) for each in holders] == [("owners that are not known", 6000)]


def test_an_executor_is_where_its_node_shows_it():
    with Lab(NODE) as lab:
        lab.session("s", "gpu=1", tasks=1)
        (executor,) = lab.executors
        holding = Holding("worker", devices=(("gpu", ("n-g7",)),))
        lab.service.observations.observed("n", Use((PodHolding(uid=executor.id, containers=(holding,)),)))
        lab.pump()
        assert executor.gpus == lab.service.state.fleet.ledger[executor.id].gpus == ("n-g7",)
        lab.finish("s")


def test_an_allocation_that_is_not_reported_in_time_is_unconfirmed_and_stays(lab):
    alloc(lab, "a")
    show(lab)
    lab.pass_time(LAG_S + 1)
    assert lab.service.observations.is_unconfirmed(lab.service.allocations.get("a"))
    assert "ullage_placements_unconfirmed 1.0" in metrics(lab)
    lab.restart()
    assert "ullage_placements_unconfirmed 1.0" in metrics(lab), "it is as long ago as before"
    show(lab, a="0123")
    lab.pass_time(LAG_S + 1)
    assert "ullage_placements_unconfirmed 0.0" in metrics(lab)


def test_a_node_that_is_forgotten_takes_its_strangers_with_it(lab):
    show(lab, other="0")
    lab.service.nodes.release("n")
    lab.pump()
    assert not lab.service.state.fleet.ledger
    lab.restart()
    assert not lab.service.state.fleet.ledger
    with pytest.raises(NotFound):
        lab.service.observations.observed("elsewhere", Use())
