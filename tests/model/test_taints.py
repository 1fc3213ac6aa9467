"""Which taints a toleration tolerates, against the rule as Kubernetes states it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.model.affinity import ANY_NODE, EVERY_NODE, Expression, NodeAffinity, Operator
from ullage.model.taint import Taint, Toleration, tolerated, untolerated

EFFECTS = "NoSchedule", "NoExecute", "PreferNoSchedule"
keys, values = st.sampled_from(["dedicated", "gpu"]), st.sampled_from(["", "a", "b"])
taints = st.builds(Taint, keys, values, st.sampled_from(EFFECTS))
tolerations = st.builds(
    Toleration,
    st.sampled_from(["", "dedicated", "gpu"]),
    st.sampled_from(["", "Equal", "Exists", "Gt", "exists"]),
    values,
    st.sampled_from(["", *EFFECTS]),
)


def keeps_off(taint: Taint, found: list[Toleration]) -> bool:
    """`FindMatchingUntoleratedTaint` of k8s.io/component-helpers with the effects of the filter, in other words."""
    if taint.effect not in ("NoSchedule", "NoExecute"):
        return False
    for each in found:
        same_effect = not each.effect or each.effect == taint.effect
        same_key = not each.key or each.key == taint.key
        equal = {"": each.value == taint.value, "Equal": each.value == taint.value, "Exists": True}
        # The API server lets no empty key through but with Exists.
        if same_effect and same_key and equal.get(each.operator, False) and (each.key or each.operator == "Exists"):
            return False
    return True


@given(st.lists(taints, max_size=4), st.lists(tolerations, max_size=4))
def test_a_taint_keeps_off_what_does_not_tolerate_it(there: list[Taint], found: list[Toleration]) -> None:
    off = [taint for taint in there if keeps_off(taint, found)]
    assert list(untolerated(there, found)) == off
    assert tolerated(there, found) == (not off)
    assert NodeAffinity(tolerations=tuple(found)).tolerates(there) == (not off)
    assert EVERY_NODE.tolerates(there)


@pytest.mark.parametrize(
    ("toleration", "does"),
    [
        (Toleration("dedicated", "Equal", "a", "NoSchedule"), True),
        (Toleration("dedicated", "Equal", "a"), True),
        (Toleration("dedicated", "", "a"), True),
        (Toleration("dedicated", "Equal", "b"), False),
        (Toleration("dedicated", "Equal"), False),
        (Toleration("dedicated", "Exists"), True),
        (Toleration("dedicated", "Exists", "", "NoExecute"), False),
        (Toleration("other", "Exists"), False),
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", effect="NoExecute"), False),
        (Toleration("dedicated", "Lt", "a"), False),
    ],
)
def test_key_operator_value_and_effect_decide(toleration: Toleration, does: bool) -> None:
    assert tolerated([Taint("dedicated", "a", "NoSchedule")], [toleration]) == does


def test_a_taint_is_written_as_kubectl_writes_it() -> None:
    assert str(Taint("dedicated", "team-a", "NoSchedule")) == "dedicated=team-a:NoSchedule"
    assert str(Taint("gpu", effect="NoExecute")) == "gpu:NoExecute"


def test_tolerations_are_part_of_the_conditions_and_stay_when_nodes_are_excluded() -> None:
    one = NodeAffinity(tolerations=(Toleration("gpu", "Exists"),))
    assert one == NodeAffinity(tolerations=(Toleration("gpu", "Exists"),))
    assert hash(one) == hash(NodeAffinity(tolerations=(Toleration("gpu", "Exists"),)))
    assert one != ANY_NODE
    elsewhere = one.excluding(["n1"])
    assert elsewhere.tolerations == one.tolerations
    assert elsewhere.required == ((Expression("metadata.name", Operator.NOT_IN, ("n1",)),),)
