"""The partitions that a card in mode `mig` registers."""

from __future__ import annotations

import json

import pytest

from tests.kube.mig_node import A30, A100, mig_card, profile
from ullage.model.error import InvalidAnnotation
from ullage.model.part import Part
from ullage.model.profile import Profiles
from ullage.model.quantity import PPM
from ullage.wire.vendors.registers import NodeText, registered_cards
from ullage.wire.vendors.shipped import NVIDIA

MIB = 2**20
KEY = "hami.io/node-nvidia-register"
H100 = [profile("1g.10gb", 9984, 13, 1, tuple(range(7)), 1), profile("7g.80gb", 81008, 100, 7, (0,), 8)]
RTX_PRO = [profile("1g.24gb", 24192, 25, 1, (0, 3, 6, 9), 3), profile("2g.48gb", 48512, 50, 2, (0, 6), 6)]


def card(*profiles, **more):
    (found,) = registered_cards(NVIDIA, NodeText("n", {KEY: json.dumps([mig_card("GPU-1", list(profiles), **more)])}))
    return found.gpu


def test_places_are_tried_from_the_end_that_keeps_large_ones_free():
    found = {each.name: (each.starts, each.size) for each in card(*A100).partitions}
    assert found == {
        "1g.10gb": ((6, 5, 4, 3, 2, 1, 0), 1),
        "2g.20gb": ((0, 2, 4), 2),
        "3g.40gb": ((4, 0), 4),
        "7g.79gb": ((0,), 8),
    }


@pytest.mark.parametrize("profiles", [A100, A100[:1], A30, H100, RTX_PRO, [*A100, {"name": "1g"}]])
def test_a_full_set_of_each_profile_fits_the_card(profiles):
    for each in card(*profiles).partitions:
        assert each.takes_ppm * len(each.starts) <= PPM
        assert each.takes_ppm <= each.compute_ppm


def test_the_amounts_of_a_slice_are_those_of_its_register():
    small, *_ = card(*A100).partitions
    assert (small.memory_bytes, small.compute_ppm, small.takes_ppm) == (9728 * MIB, 150_000, PPM // 7)
    small, *_ = card(*H100).partitions
    assert (small.compute_ppm, small.takes_ppm) == (130_000, 130_000)


def test_only_a_card_in_its_mode_has_partitions():
    assert card(*A100, mode="hami-core").partitions is None
    assert card().partitions == ()
    assert Profiles().of(card()) is None


@pytest.mark.parametrize(
    "wrong",
    [
        [profile("1g.10gb", 9728, 15, 1, (0,), 1)] * 2,
        [
            profile("1g.10gb", 9728, 15, 1, (0, 0), 1)
            | {"placements": [{"start": 0, "size": 1}, {"start": 1, "size": 2}]}
        ],
        [profile("1g.10gb", 9728, 15, 1, (-1,), 1)],
        [profile("1g.10gb", 9728, 15, 1, (2**40,), 1)],
        [profile("1g.10gb", 9728, 15, 1, (0,), 0)],
        [profile("1g.10gb", -1, 15, 1, (0,), 1)],
        [1],
    ],
)
def test_profiles_that_cannot_be_placed_are_refused(wrong):
    with pytest.raises(InvalidAnnotation, match="node-nvidia-register"):
        card(*wrong)


@pytest.mark.parametrize(
    ("part", "names"),
    [
        (Part(vram_bytes=9728 * MIB), ["1g.10gb", "2g.20gb", "3g.40gb", "7g.79gb"]),
        (Part(vram_bytes=9728 * MIB + 1), ["2g.20gb", "3g.40gb", "7g.79gb"]),
        (Part(compute_ppm=150_000), ["1g.10gb", "2g.20gb", "3g.40gb", "7g.79gb"]),
        (Part(compute_ppm=150_001), ["2g.20gb", "3g.40gb", "7g.79gb"]),
        (Part(compute_ppm=PPM, vram_ppm=PPM), ["7g.79gb"]),
        (Part(vram_bytes=2**40), []),
    ],
)
def test_profiles_are_tried_from_the_smallest_that_suffices(part, names):
    found = Profiles().candidates(card(*reversed(A100)), part, None)
    assert [each.name for each in (found[1] if found else ())] == names
