"""Masks over nodes say what the terms say of each node by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.core.books.exclusion import Exclusion
from ullage.core.books.fleet import Fleet
from ullage.core.books.labels import Labels
from ullage.core.placing.placement import table_of
from ullage.core.strategies import strategy_named
from ullage.model.affinity import NODE_NAME, Expression, NodeAffinity, Operator
from ullage.model.node import Node
from ullage.model.request import ResourceRequirement

VALUES = ("a", "b", "7", "-3", "12", "")
keys = st.sampled_from(["zone", "size", "none", NODE_NAME])
labels = st.dictionaries(st.sampled_from(["zone", "size"]), st.sampled_from(VALUES))


@st.composite
def expressions(draw: st.DrawFn) -> Expression:
    operator = draw(st.sampled_from(Operator))
    if operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST):
        return Expression(draw(keys), operator)
    if operator in (Operator.GT, Operator.LT):
        return Expression(draw(keys), operator, (draw(st.sampled_from(["0", "7", "-4"])),))
    values = draw(st.lists(st.sampled_from([*VALUES, "n0", "n3", "elsewhere"]), min_size=1, max_size=3))
    return Expression(draw(keys), operator, tuple(values))


terms = st.lists(expressions(), max_size=3).map(tuple)
affinities = st.builds(
    NodeAffinity,
    st.lists(terms, max_size=3).map(tuple),
    st.lists(st.tuples(st.integers(-5, 100), terms), max_size=3).map(tuple),
)


def fleet_of(found: list[dict[str, str]], cordoned: int = -1) -> Fleet:
    return Fleet(Node(f"n{k}", 1000, 1 << 30, labels=each, cordoned=k == cordoned) for k, each in enumerate(found))


@pytest.mark.long
@settings(max_examples=400)
@given(st.lists(labels, max_size=20), st.lists(affinities, min_size=1, max_size=3))
def test_masks_and_the_rule_for_one_node_agree(found, asked):
    nodes = fleet_of(found).nodes
    exclusion = Exclusion(Labels(nodes))
    for affinity in asked:
        for _ in range(2):  # made, then remembered
            allowed = [affinity.allows(node.name, node.labels) for node in nodes]
            assert exclusion.allowed(affinity).tolist() == allowed
            assert exclusion.bonus(affinity).tolist() == [affinity.bonus(node.name, node.labels) for node in nodes]


@settings(max_examples=50)
@given(st.lists(labels, min_size=1, max_size=9), affinities, st.integers(-1, 8))
def test_a_table_has_room_where_the_terms_allow_and_ranks_by_the_preferred_ones(found, affinity, cordoned):
    fleet = fleet_of(found, cordoned)
    asked = ResourceRequirement(1000, nodes=affinity)
    table = table_of(fleet, asked, strategy_named("best-fit")).refreshed()
    plain = table_of(fleet, ResourceRequirement(1000), strategy_named("best-fit")).refreshed()
    for row, node in enumerate(fleet.nodes):
        may = node.schedulable and affinity.allows(node.name, node.labels)
        assert table.room[row] == may
        if may:
            assert table.ranked[row] - plain.ranked[row] == affinity.bonus(node.name, node.labels)


def test_nodes_of_one_label_value_are_one_domain_and_others_are_alone():
    found = [{"rack": "r1"}, {}, {"rack": "r2"}, {"rack": "r1"}, {"zone": "r1"}]
    domains = Labels(fleet_of(found).nodes).domains("rack")
    assert domains[0] == domains[3]
    assert len(set(np.asarray(domains).tolist())) == 4
