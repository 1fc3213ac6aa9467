"""A card is where it was reported last: it never has two homes, nor two owners."""

from dataclasses import replace

import pytest
from tests.lab import Lab, a_node

from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.error import Conflict, InvalidRequest
from ullage.model.request import ResourceRequirement
from ullage.service.engine_port import NodeReported


def nothing() -> None:
    pass


def request(uid: str, text: str = "gpu=1") -> Request:
    return Request(uid, ResourceRequirement.from_string(text))


@pytest.mark.parametrize(("old", "new"), [("n1", "n2"), ("n2", "n1")])
@pytest.mark.parametrize("leaves_first", [True, False])
def test_a_held_card_that_moves_keeps_its_owner_and_gets_no_second(old, new, leaves_first):
    nodes = {name: a_node(name) for name in (old, new)}
    nodes[old] = a_node(old, gpus=1)
    with Lab(*nodes.values()) as lab:
        lab.service.allocations.alloc(request("w"), nothing)
        lab.pump()
        card = nodes[old].gpus
        reports = [replace(nodes[old], gpus=()), replace(nodes[new], gpus=card)]
        for node in reports if leaves_first else reports[1:]:
            lab.service.on_engine_event(NodeReported(node))
            lab.pump()
        homes = [node.name for node in lab.service.state.nodes.values() if card[0] in node.gpus]
        assert homes == [new]
        assert lab.service.state.fleet.ledger["w"].node == new
        lab.service.allocations.alloc(request("w2"), nothing)
        lab.session("s", "gpu=1", tasks=1)
        lab.pump()
        fleet = lab.service.state.fleet
        assert [set(holders) for holders in fleet.holders] == [{"w"}]
        assert fleet.gpu_free.sum() == 0


def test_a_card_of_two_that_moves_is_counted_where_it_is():
    first, second = a_node("n1", gpus=2), a_node("n2", gpus=1)
    with Lab(first, second) as lab:
        lab.service.allocations.alloc(request("w", "gpu=2"), nothing)
        lab.service.on_engine_event(NodeReported(replace(second, gpus=(*second.gpus, replace(first.gpus[1], index=7)))))
        lab.pump()
        assert lab.service.state.fleet.gpu_free.tolist() == [0, 1]


def test_a_card_that_vanished_from_holders_on_two_nodes_is_missing_on_one():
    node, other = a_node("n1", gpus=3), a_node("n2")
    with Lab(node, other) as lab:
        lab.service.allocations.bind(request("v", "gpu=2,percent=40"), ["GPU-n1-0", "GPU-n1-1"], nothing)
        lab.service.allocations.bind(request("w", "gpu=2,percent=40"), ["GPU-n1-1", "GPU-n1-2"], nothing)
        for report in (
            replace(other, gpus=node.gpus[:1]),
            replace(node, gpus=node.gpus[2:]),
            replace(other, gpus=node.gpus[:1], labels={"rack": "1"}),
        ):
            lab.service.on_engine_event(NodeReported(report))
            lab.pump()
            cards = [gpu.uuid for gpu in lab.service.state.fleet.cards]
            assert sorted(cards) == ["GPU-n1-0", "GPU-n1-1", "GPU-n1-2"]
        ledger = lab.service.state.fleet.ledger
        assert (ledger["v"].node, ledger["w"].node) == ("n2", "n1")


def test_a_request_for_more_cards_than_any_node_has_places_is_refused_at_once():
    with pytest.raises(InvalidRequest, match="128"):
        request("p", "gpu=2147483647")


def test_an_old_assumption_does_not_end_what_came_after_it():
    with Lab(a_node("n1", gpus=1)) as lab:
        allocations = lab.service.allocations
        allocations.assume(request("u"), None, nothing)
        allocations.forget("u", nothing)
        lab.pass_time(1700)
        allocations.assume(request("u"), None, nothing)
        lab.pass_time(150)
        assert "u" in lab.service.state.fleet.ledger
        lab.pass_time(1700)
        assert "u" not in lab.service.state.fleet.ledger


def test_a_gang_with_a_member_of_another_gang_is_refused_whole():
    with Lab(a_node("n1", gpus=1)) as lab:

        def member(uid: str, key: str) -> Request:
            return replace(request(uid, "gpu=1"), claim=Claim(gang=GangClaim(key, 2, 2)))

        gangs = lab.service.gangs
        gangs.put("g1", [member("m1", "g1")], nothing)
        with pytest.raises(Conflict):
            gangs.put("g2", [member("k1", "g2"), member("m1", "g2")], nothing)
        assert lab.service.gangs.status("g1").answers.keys() == {"m1"}
        with pytest.raises(InvalidRequest):
            gangs.status("g2")
