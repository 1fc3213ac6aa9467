"""A requirement as a mapping in a body."""

from __future__ import annotations

import pytest

from ullage.model.error import InvalidRequest
from ullage.model.request import ResourceRequirement
from ullage.server import bodies
from ullage.wire.requirement import ResourceMap


def test_pairs_are_a_mapping_of_their_own():
    found = bodies.requirement(ResourceMap(gpu=2, pairs={"gpu~nic": "required", "gpu~cpu": "preferred"}), None)
    assert found == ResourceRequirement.from_string("gpu=2,gpu~nic=required,gpu~cpu=preferred")


def test_links_are_a_key_of_the_mapping():
    found = bodies.requirement(ResourceMap(gpu=2, links="best"), None)
    assert found == ResourceRequirement.from_string("gpu=2,links=best")
    with pytest.raises(InvalidRequest, match="links"):
        bodies.requirement(ResourceMap(gpu=2, links="fast"), None)


@pytest.mark.parametrize("pairs", [{"cpu": "8"}, {"gpu~nic": "hard"}, {"nic~nic": "required"}])
def test_an_invalid_pair_is_refused(pairs):
    with pytest.raises(InvalidRequest):
        bodies.requirement(ResourceMap(gpu=2, pairs=pairs), None)
