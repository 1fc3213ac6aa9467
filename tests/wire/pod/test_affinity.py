"""nodeSelector and nodeAffinity as terms over nodes."""

import pytest

from tests.wire.pod.pods import pod
from ullage.model.affinity import ANY_NODE, Expression, NodeAffinity, Operator
from ullage.model.error import InvalidRequest
from ullage.wire.pod import compose_request

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
PATH = "spec.affinity.nodeAffinity"

ZONE = Expression("zone", Operator.IN, ("a", "b"))
FAST = Expression("fast", Operator.EXISTS)
NODE = Expression("metadata.name", Operator.IN, ("n1",))
DISK = Expression("disk", Operator.IN, ("ssd",))


def written(expression):
    return {"key": expression.key, "operator": expression.operator.value, "values": list(expression.values)}


def term(*expressions, fields=()):
    return {"matchExpressions": [*map(written, expressions)], "matchFields": [*map(written, fields)]}


def nodes_of(selector=None, required=None, preferred=None):
    """The terms of a pod; `required` are its terms, or what stands in their place."""
    wanted = {"nodeSelectorTerms": required} if isinstance(required, list) else required
    affinity = {"nodeAffinity": {REQUIRED: wanted, PREFERRED: preferred}}
    return compose_request(pod(spec={"nodeSelector": selector, "affinity": affinity})).requirement.nodes


def test_a_pod_without_conditions_may_run_on_any_node():
    assert compose_request(pod()).requirement.nodes is ANY_NODE
    assert (
        compose_request(pod(spec={"affinity": {"podAffinity": {}}, "nodeSelector": {}})).requirement.nodes is ANY_NODE
    )
    assert nodes_of(preferred=[]) is ANY_NODE


def test_a_selector_is_one_term():
    size = Expression("size", Operator.IN, ("l",))
    assert nodes_of({"size": "l", "disk": "ssd"}) == NodeAffinity(((DISK, size),))
    assert nodes_of({"size": "l", "disk": "ssd"}) == nodes_of({"disk": "ssd", "size": "l"})


def test_terms_hold_one_or_the_other_and_the_selector_in_each():
    assert nodes_of(required=[term(ZONE, FAST), term(fields=[NODE])]) == NodeAffinity(((ZONE, FAST), (NODE,)))
    found = nodes_of({"disk": "ssd"}, [term(ZONE), term(FAST, fields=[NODE])])
    assert found == NodeAffinity(((ZONE, DISK), (FAST, NODE, DISK)))
    assert found.allows("n2", {"zone": "b", "disk": "ssd"})
    assert not found.allows("n2", {"zone": "b"})
    assert not found.allows("n2", {"fast": "", "disk": "ssd"})
    assert found.allows("n1", {"fast": "", "disk": "ssd"})


def test_an_empty_term_matches_nothing_even_with_a_selector():
    assert nodes_of(required=[{}, term(ZONE)]) == NodeAffinity(((), (ZONE,)))
    assert not nodes_of({"disk": "ssd"}, [{}]).allows("n1", {"disk": "ssd"})


def test_preferred_terms_have_weights_and_no_selector():
    preferred = [{"weight": 7, "preference": term(ZONE)}, {"weight": 1, "preference": {}}]
    found = nodes_of({"disk": "ssd"}, preferred=preferred)
    assert found == NodeAffinity(((DISK,),), ((7, (ZONE,)),))
    assert found.bonus("n1", {"zone": "a"}) == 7
    assert nodes_of(preferred=preferred[1:]) is ANY_NODE


@pytest.mark.parametrize(
    ("operator", "values", "labels", "holds"),
    [
        (Operator.NOT_IN, ["a"], {}, True),
        (Operator.NOT_IN, ["a"], {"zone": "a"}, False),
        (Operator.DOES_NOT_EXIST, None, {"zone": "a"}, False),
        (Operator.GT, ["5"], {"zone": "6"}, True),
        (Operator.LT, ["5"], {"zone": "six"}, False),
    ],
)
def test_each_operator_is_read(operator, values, labels, holds):
    found = nodes_of(required=[{"matchExpressions": [{"key": "zone", "operator": operator.value, "values": values}]}])
    assert found.allows("n1", labels) is holds


def label(**changes):
    return [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"], **changes}]}]


def field(**changes):
    return [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"], **changes}]}]


@pytest.mark.parametrize(
    ("required", "path"),
    [
        ("here", ""),
        ({}, ".nodeSelectorTerms"),
        ([], ".nodeSelectorTerms"),
        ({"nodeSelectorTerms": "zone"}, ".nodeSelectorTerms"),
        (["zone"], ".nodeSelectorTerms[0]"),
        ([{}, {"matchExpressions": {}}], ".nodeSelectorTerms[1].matchExpressions"),
        ([{"matchExpressions": ["zone"]}], ".nodeSelectorTerms[0].matchExpressions[0]"),
        (label(key=""), ".nodeSelectorTerms[0].matchExpressions[0].key"),
        (label(key=None), ".nodeSelectorTerms[0].matchExpressions[0].key"),
        (label(key="metadata.name"), ".nodeSelectorTerms[0].matchExpressions[0].key"),
        (label(operator="in"), ".nodeSelectorTerms[0].matchExpressions[0].operator"),
        (label(operator=None), ".nodeSelectorTerms[0].matchExpressions[0].operator"),
        (label(operator=["In"]), ".nodeSelectorTerms[0].matchExpressions[0].operator"),
        (label(values="a"), ".nodeSelectorTerms[0].matchExpressions[0].values"),
        (label(values=["a", True]), ".nodeSelectorTerms[0].matchExpressions[0].values[1]"),
        (label(values=[]), ".nodeSelectorTerms[0].matchExpressions[0]"),
        (label(operator="Exists"), ".nodeSelectorTerms[0].matchExpressions[0]"),
        (label(operator="Gt"), ".nodeSelectorTerms[0].matchExpressions[0]"),
        (label(operator="Lt", values=["1", "2"]), ".nodeSelectorTerms[0].matchExpressions[0]"),
        (field(key="metadata.namespace"), ".nodeSelectorTerms[0].matchFields[0].key"),
        (field(operator="Exists", values=None), ".nodeSelectorTerms[0].matchFields[0]"),
        (field(values=["n1", "n2"]), ".nodeSelectorTerms[0].matchFields[0]"),
    ],
)
def test_errors_in_required_terms_name_their_path(required, path):
    with pytest.raises(InvalidRequest) as caught:
        nodes_of(required=required)
    assert caught.value.field == f"{PATH}.{REQUIRED}{path}"
    assert caught.value.message.startswith(f"{PATH}.{REQUIRED}{path}: ")


@pytest.mark.parametrize(
    ("preferred", "path"),
    [
        ({}, ""),
        (["zone"], "[0]"),
        ([{"preference": term(ZONE)}], "[0].weight"),
        ([{"weight": 0, "preference": term(ZONE)}], "[0].weight"),
        ([{"weight": 101, "preference": term(ZONE)}], "[0].weight"),
        ([{"weight": True, "preference": term(ZONE)}], "[0].weight"),
        ([{"weight": 1, "preference": "zone"}], "[0].preference"),
        ([{"weight": 1, "preference": label(values=[])[0]}], "[0].preference.matchExpressions[0]"),
    ],
)
def test_errors_in_preferred_terms_name_their_path(preferred, path):
    with pytest.raises(InvalidRequest) as caught:
        nodes_of(preferred=preferred)
    assert caught.value.field == f"{PATH}.{PREFERRED}{path}"


@pytest.mark.parametrize(
    ("selector", "path"),
    [
        ("zone", "spec.nodeSelector"),
        ({"zone": 1}, "spec.nodeSelector.zone"),
        ({"zone": None}, "spec.nodeSelector.zone"),
        ({1: "a", "zone": "b"}, "spec.nodeSelector.1"),
        ({"metadata.name": "n1"}, "spec.nodeSelector.metadata.name"),
    ],
)
def test_errors_in_a_selector_name_their_path(selector, path):
    with pytest.raises(InvalidRequest) as caught:
        nodes_of(selector)
    assert caught.value.field == path


def test_an_affinity_that_is_not_a_mapping_is_refused():
    with pytest.raises(InvalidRequest, match=PATH):
        compose_request(pod(spec={"affinity": {"nodeAffinity": []}}))


def test_a_pod_with_too_many_conditions_is_refused_by_the_field_that_has_them():
    conditions = [Expression(f"k{number}", Operator.EXISTS) for number in range(1025)]
    assert len(nodes_of(required=[term(*conditions[:1024])]).required[0]) == 1024
    for field, given in {
        "spec.nodeSelector": {"selector": {each.key: "a" for each in conditions}},
        f"{PATH}.{REQUIRED}": {"required": [term(each) for each in conditions]},
        f"{PATH}.{PREFERRED}": {"preferred": [{"weight": 1, "preference": term(*conditions)}]},
    }.items():
        with pytest.raises(InvalidRequest, match=r"1025 conditions.*at most 1024") as refused:
            nodes_of(**given)
        assert refused.value.field == field


def test_conditions_of_the_selector_count_in_each_required_term():
    selector, terms = {f"s{number}": "a" for number in range(31)}, [term(ZONE)] * 32
    assert len(nodes_of(selector, terms).required) == 32
    with pytest.raises(InvalidRequest, match="1056 conditions"):
        nodes_of(selector, [*terms, term(ZONE)])


@pytest.mark.parametrize("number", ["9223372036854775808", "1" * 5000])
def test_a_number_of_more_than_64_bits_is_refused(number):
    with pytest.raises(InvalidRequest, match="one whole number of 64 bits"):
        Expression("size", Operator.GT, (number,))
    assert not Expression("size", Operator.GT, ("9223372036854775807",)).holds("n", {"size": number})
