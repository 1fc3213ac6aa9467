"""HyperNode objects: the domain of a node in each tier."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.topology.hostile import shaped
from ullage.model.error import InvalidRequest, Unavailable
from ullage.wire.re2 import BadPattern, matches
from ullage.wire.topology.hypernode import HyperNode, Member, Of, read_hypernode, tiers_of


def member(kind="Node", **selector):
    return {"type": kind, "selector": selector}


def exact(name, kind="Node"):
    return member(kind, exactMatch={"name": name})


def like(pattern, kind="Node"):
    return member(kind, regexMatch={"pattern": pattern})


def reported(name, tier, *members):
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": {"tier": tier, "members": list(members)},
    }


DOCUMENT = reported(
    "s0",
    1,
    exact("n0"),
    like("^n[12]$"),
    member(labelMatch={"matchLabels": {"rack": "r0"}}),
    exact("s9", "HyperNode"),
)
NODES = {f"n{number}": {"rack": f"r{number // 4}"} for number in range(8)}


def labels(*documents, nodes=NODES):
    read = [read_hypernode(document) for document in documents]
    assert all(warnings == () for _, warnings in read)
    return tiers_of([hypernode for hypernode, _ in read], nodes, matches)


def test_a_malformed_pattern_is_named_and_blocks_nothing_else():
    def unread(name, pattern):
        raise Unavailable("patterns need something that is not installed")

    known, _ = read_hypernode(reported("s0", 1, like("n"), exact("n0")))
    found, wrong = tiers_of([known], NODES, unread)
    assert found == {"n0": {"topology.volcano.sh/tier-1": "s0"}}
    assert wrong == ("patterns need something that is not installed",)


def short(found):
    return {name: {key.rpartition("-")[2]: value for key, value in tiers.items()} for name, tiers in found.items()}


def test_a_document_is_read():
    assert read_hypernode(DOCUMENT) == (
        HyperNode(
            "s0",
            1,
            (
                Member(Of.NODE, name="n0"),
                Member(Of.NODE, pattern="^n[12]$"),
                Member(Of.NODE, labels=(("rack", "r0"),)),
                Member(Of.HYPERNODE, name="s9"),
            ),
        ),
        (),
    )


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (exact("x", "Rack"), "Node or HyperNode"),
        (member(), "one of exactMatch"),
        (member(exactMatch={"name": "a"}, regexMatch={"pattern": "b"}), "one of exactMatch"),
        (member("HyperNode", labelMatch={"matchLabels": {"a": "b"}}), "by name or pattern"),
        (member(labelMatch={"matchExpressions": [{"key": "a", "operator": "Exists"}]}), "only matchLabels"),
        (3, "mapping"),
    ],
)
def test_a_member_that_cannot_be_read_is_dropped_alone(wrong, word):
    document = reported("s0", 1, exact("n0"), wrong) if isinstance(wrong, dict) else reported("s0", 1, exact("n0"))
    if not isinstance(wrong, dict):
        document["spec"]["members"] = wrong
        with pytest.raises(InvalidRequest):
            read_hypernode(document)
        return
    found, warnings = read_hypernode(document)
    assert found.members == (Member(Of.NODE, name="n0"),)
    assert len(warnings) == 1
    assert word in warnings[0]


@pytest.mark.parametrize("tier", [-1, 65, "1", True])
def test_an_invalid_tier_is_refused(tier):
    with pytest.raises(InvalidRequest, match=r"spec\.tier"):
        read_hypernode(reported("s0", tier))


def test_each_tier_is_a_label_of_the_nodes_in_it_and_below_it():
    found, wrong = labels(
        reported("s0", 1, like("^n[0-3]$")),
        reported("s1", 1, member(labelMatch={"matchLabels": {"rack": "r1"}})),
        reported("spine", 2, like("^s[01]$", "HyperNode"), exact("gone", "HyperNode")),
        reported("all", 3, exact("spine", "HyperNode")),
    )
    assert wrong == ()
    assert short(found) == {
        name: {"1": "s0" if number < 4 else "s1", "2": "spine", "3": "all"} for number, name in enumerate(NODES)
    }
    assert all(key.startswith("topology.volcano.sh/tier-") for tiers in found.values() for key in tiers)


def test_of_two_of_a_tier_the_first_by_name_has_a_node_and_loops_end():
    found, wrong = labels(
        reported("b", 1, exact("n0"), exact("n1")),
        reported("a", 1, exact("n1"), exact("c", "HyperNode")),
        reported("c", 2, exact("a", "HyperNode"), exact("d", "HyperNode")),
        reported("d", 2, exact("c", "HyperNode"), like("((", "Node")),
    )
    assert short(found) == {"n0": {"1": "b"}, "n1": {"1": "a", "2": "c"}}
    assert [sentence.split(":")[0] for sentence in wrong] == ["a", "b", "c", "d", "pattern '(('"]


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_a_node_is_in_each_hypernode_from_which_a_walk_down_reaches_it(seed, count):
    draw = random.Random(seed)
    hypernodes = [
        HyperNode(
            f"h{number}",
            draw.randint(0, 3),
            tuple(
                Member(Of.NODE, name=f"n{draw.randrange(8)}")
                if draw.random() < 0.5
                else Member(Of.HYPERNODE, name=f"h{draw.randrange(count)}")
                for _ in range(draw.randrange(4))
            ),
        )
        for number in range(count)
    ]
    by_name = {each.name: each for each in hypernodes}

    def below(each):
        inside = set()
        for one in each.members:
            if one.of is Of.NODE:
                inside |= {one.name} & NODES.keys()
            elif by_name[one.name].tier < each.tier:
                inside |= below(by_name[one.name])
        return inside

    found, _ = tiers_of(draw.sample(hypernodes, count), NODES, matches)
    for name in NODES:
        for tier in range(4):
            own = sorted(each.name for each in hypernodes if each.tier == tier and name in below(each))
            assert short(found).get(name, {}).get(str(tier)) == (own[0] if own else None)


@given(shaped(DOCUMENT, ["spec", "tier", "members", "type", "selector", "name"]))
def test_any_request_is_read_or_refused(document):
    with contextlib.suppress(InvalidRequest):
        read_hypernode(document)


def test_patterns_are_those_of_re2():
    assert matches("node-12", "e-1[0-9]$")
    assert not matches("node-12", "^e")
    assert not matches("a" * 5000, "(a+)+$b")
    for pattern in ("((", "(?=a)", "a" * 1025, "\ud800"):
        with pytest.raises(BadPattern):
            matches("a", pattern)
