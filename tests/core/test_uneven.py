"""Reservations that take other amounts of some cards than of the rest."""

import pytest
from tests.books import GIB, a_card, a_node, ask

from ullage.core.placing.decision import Refusal
from ullage.core.placing.rules import Rules
from ullage.model.error import Conflict
from ullage.model.quota import Caps, Quota
from ullage.model.rejection import Code
from ullage.service.cluster import Cluster


def reserved(rules: Rules | None = None) -> Cluster:
    """Two cards of 16 GiB, 2 GiB of each reserved for `new`, and 8 of one held by another."""
    cluster = Cluster(rules or Rules(), lambda: 0.0, lambda: 1000.0)
    cluster.set_nodes([a_node("n", a_card("g0"), a_card("g1"))])
    cluster.recover([])
    held = cluster.reserve(ask("gpu=1,vram=8g,gpu_uuid=g0", "old"), "n")
    assert not isinstance(held, Refusal)
    cluster.confirm("old")
    found = cluster.reserve(ask("gpu=2,vram=2g"), "n")
    assert not isinstance(found, Refusal)
    return cluster


def free(cluster: Cluster) -> list[int]:
    return (cluster.allocator.fleet.vram_free // GIB).tolist()


def charged(cluster: Cluster) -> dict[str, int]:
    held = cluster.held("new")
    assert held is not None
    return {uuid: charge.vram // GIB for uuid, charge in zip(held.gpus, held.charges, strict=True)}


def test_each_card_is_charged_its_own_amount():
    cluster = reserved()
    found = cluster.charge_unevenly("new", {"g0": 8 * GIB, "g1": 3 * GIB, "elsewhere": GIB})
    assert not isinstance(found, Refusal)
    assert (charged(cluster), free(cluster)) == ({"g0": 8, "g1": 3}, [0, 13])
    cluster.confirm("new")
    assert cluster.charge_unevenly("new", {"g0": GIB}) == cluster.held("new")
    assert charged(cluster) == {"g0": 8, "g1": 3}
    cluster.free("new")
    assert free(cluster) == [8, 16]


def test_where_one_card_has_too_little_nothing_is_reserved():
    cluster = reserved()
    assert [each.gpu for each in cluster.shortages("new", {"g0": 8 * GIB + 1, "g1": 16 * GIB})] == ["g0"]
    assert [each.gpu for each in cluster.shortages("else", {"g0": 7 * GIB, "g1": 14 * GIB})] == ["g0"]
    found = cluster.charge_unevenly("new", {"g0": 8 * GIB + 1, "g1": 2 * GIB})
    assert isinstance(found, Refusal)
    (short,) = found.rejections
    assert (short.code, short.needed, short.had, short.gpu) == (Code.GPU_VRAM, 8 * GIB + 1, 8 * GIB, "g0")
    assert (cluster.held("new"), free(cluster)) == (None, [8, 16])
    with pytest.raises(Conflict):
        cluster.charge_unevenly("new", {"g0": GIB})


def test_what_a_quota_does_not_allow_is_refused():
    cluster = reserved()
    cluster.quotas.set("team", Quota(total_requests=Caps(vram_bytes=18 * GIB)))
    assert not isinstance(cluster.charge_unevenly("new", {"g1": 8 * GIB}), Refusal)
    assert isinstance(cluster.charge_unevenly("new", {"g1": 8 * GIB + 1}), Refusal)
    assert cluster.held("new") is None
