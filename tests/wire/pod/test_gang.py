"""Gangs of pods."""

import pytest

from tests.wire.pod.pods import pod, refusal
from ullage.model.claim import GangClaim, Subgroup
from ullage.model.error import InvalidAnnotation
from ullage.wire.pod import compose_request, gang_annotations


def gang(replicas=None, **keys):
    return compose_request(pod(**keys), replicas=replicas).claim.gang


@pytest.mark.parametrize(
    ("keys", "replicas", "wanted"),
    [
        ({}, 4, None),
        ({"gang_enabled": "false", "gang_min_members": "3"}, 4, None),
        ({"gang_enabled": "true"}, 1, None),
        ({"gang_min_members": "0"}, 4, None),
        ({"gang_enabled": "true"}, 4, (4, 4, None)),
        ({"gang_enabled": "true", "gang_min_members": "0"}, 4, (4, 4, None)),
        ({"gang_enabled": "true", "gang_min_members": "3"}, 4, (3, 4, None)),
        ({"gang_min_members": "3"}, None, (3, 3, None)),
        ({"gang_enabled": "true", "gang_min_members": "2", "gang_timeout": "5m"}, None, (2, 2, 300.0)),
        ({"gang_enabled": "true", "gang_timeout": ""}, 2, (2, 2, None)),
        ({"gang_enabled": "true", "gang_timeout": "0"}, 2, (2, 2, None)),
        ({"gang_enabled": "true", "gang_desired_members": "5", "gang_required_members": "4"}, None, (4, 5, None)),
    ],
)
def test_gangs_of_pods(keys, replicas, wanted):
    assert gang(replicas, **keys) == (None if wanted is None else GangClaim("team/serve", *wanted))


def test_a_pod_names_its_subgroup():
    keys = {"gang_min_members": "4", "gang_within": "block", "gang_subgroup": "a", "gang_subgroup_members": "2"}
    found = gang(**keys, gang_subgroup_domain="row,rack", gang_subgroup_within="row")
    part = Subgroup("a", 2, "row,rack", "row")
    assert found == GangClaim("team/serve", 4, 4, within="block", subgroups=(part,), required_subgroups=0)
    assert gang(gang_min_members="2", gang_subgroup="b").subgroups == (Subgroup("b"),)


def test_a_stamped_group_key_is_used():
    found = gang(workload=None, gang_enabled="true", gang_min_members="2", gang_group_key="team/other")
    assert found == GangClaim("team/other", 2, 2)


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ({"gang_enabled": "yes"}, ["gang-enabled"]),
        ({"gang_enabled": "true", "gang_min_members": "1"}, ["gang-min-members", "'1'"]),
        ({"gang_min_members": "1"}, ["gang-min-members"]),
        ({"gang_enabled": "true", "gang_min_members": "-2"}, ["gang-min-members"]),
        ({"gang_enabled": "true"}, ["gang-enabled", "gang-min-members"]),
        ({"gang_min_members": "2", "gang_timeout": "later"}, ["gang-timeout"]),
        ({"gang_min_members": "2", "gang_timeout": "-1s"}, ["gang-timeout"]),
        ({"gang_min_members": "2", "workload": None}, ["gang-min-members: '2'", "there is no ullage.io/workload"]),
        ({"gang_enabled": "true", "gang_min_members": "2", "workload": None}, ["gang-enabled: 'true'", "workload"]),
        (
            {"gang_min_members": "2", "gang_subgroup_within": "rack"},
            ["gang-subgroup-within", "no ullage.io/gang-subgroup"],
        ),
        ({"gang_min_members": "2", "gang_subgroup_members": "2"}, ["gang-subgroup-members", "gang-subgroup"]),
        (
            {"gang_min_members": "2", "gang_subgroup": "a", "gang_subgroup_within": "a,b"},
            ["gang-subgroup-within", "'a,b'"],
        ),
        ({"gang_min_members": "2", "gang_domain": "a,,b"}, ["gang-domain", "'a,,b'"]),
        ({"gang_desired_members": "x", "gang_enabled": "true"}, ["gang-desired-members"]),
        (
            {"gang_enabled": "true", "gang_desired_members": "2", "gang_required_members": "3"},
            ["gang-required-members", "gang-desired-members"],
        ),
    ],
)
def test_an_invalid_gang_is_refused(keys, names):
    message = refusal(**keys)
    assert all(name in message for name in names)


def test_a_minimum_above_the_replicas_is_refused():
    with pytest.raises(InvalidAnnotation, match="gang-min-members"):
        gang(2, gang_min_members="3")


def test_stamped_annotations_give_the_same_gang():
    first = compose_request(pod(gang_enabled="true", gang_min_members="2"), replicas=3)
    stamped = pod(gang_enabled="true", gang_min_members="2")
    stamped["metadata"]["annotations"].update(gang_annotations(first))
    assert compose_request(stamped).claim.gang == first.claim.gang == GangClaim("team/serve", 2, 3)
    assert gang_annotations(compose_request(pod())) == {}
