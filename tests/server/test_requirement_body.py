"""A requirement as a mapping in a body."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ullage.model.application import COMMAND
from ullage.model.error import InvalidRequest
from ullage.model.request import ResourceRequirement
from ullage.model.session import DEFAULT_REQUIREMENT
from ullage.server import bodies
from ullage.wire.requirement import ResourceMap
from ullage.wire.session import CreateSession


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


@pytest.mark.parametrize(
    ("default", "stated", "whole"),
    [
        ("cpu=1,mem=1g", "gpu=2", "cpu=1,mem=1g,gpu=2"),
        ("cpu=1,mem=1g", "cpu=4,mem=2g", "cpu=4,mem=2g"),
        ("cpu=1,mem=1g,gpu=0.5,vram=4g", "cpu=4", "cpu=4,mem=1g,gpu=0.5,vram=4g"),
        ("cpu=1,mem=1g,gpu=0.5,vram=4g", "gpu=1", "cpu=1,mem=1g,gpu=1"),
        ("cpu=1,mem=1g,gpu=0.5,vram=4g", "gpu=0", "cpu=1,mem=1g"),
        ("cpu=1,mem=1g,gpu=2,links=best", "memory=2g", "cpu=1,mem=2g,gpu=2,links=best"),
    ],
)
def test_what_a_request_leaves_out_is_filled_with_the_default(default, stated, whole):
    filled = ResourceRequirement.from_string(default).filling(stated)
    assert ResourceRequirement.from_string(filled) == ResourceRequirement.from_string(whole)


def test_only_a_text_can_be_filled():
    body = CreateSession(application="command", resreq=ResourceMap(gpu=1), fill_resreq=True)
    with pytest.raises(InvalidRequest, match="resreq has to be a text"):
        bodies.session_spec(body, COMMAND, DEFAULT_REQUIREMENT, None)
    body = CreateSession(application="command", resreq="gpu=1", fill_resreq=True)
    found = bodies.session_spec(body, COMMAND, DEFAULT_REQUIREMENT, None).resreq
    assert found == replace(DEFAULT_REQUIREMENT, gpu_count=1)
