"""Bindings of cards: identity, wildcards of old records, selectors, and conflicts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.model.affinity import Expression, Operator
from ullage.model.binding import (
    Binding,
    BindingMismatch,
    BindingState,
    ShareMode,
    Tenant,
    match_bindings,
    supported_modes,
)

GIB = 2**30
ALICE = Tenant("comfyui", "alice", "user-alice", {"tier": "gpu"})
BOB = Tenant("comfyui", "bob", "user-bob")


def binding(name="b", uuid="GPU-1", app="comfyui", owner="alice", namespace="user-alice", selector=(), **more):
    return Binding(name, uuid, app, owner, namespace, selector, **more)


LEGACY = binding(owner="", namespace="", legacy=True)


def test_two_owners_of_one_application_get_their_own_cards():
    bindings = binding("a", "GPU-1"), binding("b", "GPU-2", owner="bob", namespace="user-bob")
    assert [each.uuid for each in match_bindings(bindings, ALICE).bindings] == ["GPU-1"]
    assert [each.uuid for each in match_bindings(bindings, BOB).bindings] == ["GPU-2"]


@pytest.mark.parametrize(
    ("one", "tenant", "why"),
    [
        (binding(), ALICE, None),
        (binding(), Tenant("comfyui", "", "user-alice"), BindingMismatch.OWNER),
        (binding(), BOB, BindingMismatch.OWNER),
        (binding(), Tenant("comfyui", "alice", "elsewhere"), BindingMismatch.NAMESPACE),
        (binding(), Tenant("other", "alice", "user-alice"), BindingMismatch.APPLICATION),
        (binding(app=""), Tenant("", "alice", "user-alice"), BindingMismatch.APPLICATION),
        (LEGACY, ALICE, None),
        (LEGACY, BOB, None),
        (LEGACY, Tenant("comfyui"), None),
        (binding(namespace="", legacy=True), Tenant("comfyui", "alice", "anywhere"), None),
        (binding(namespace="", legacy=True), BOB, BindingMismatch.OWNER),
        (binding(owner=""), ALICE, BindingMismatch.OWNER),
        (binding(namespace=""), ALICE, BindingMismatch.NAMESPACE),
        (binding(uuid=""), ALICE, BindingMismatch.INVALID),
        (binding().invalid("it says nothing"), ALICE, BindingMismatch.INVALID),
        (binding(selector=None), ALICE, BindingMismatch.SELECTOR),
    ],
)
def test_application_owner_and_namespace_all_count(one, tenant, why):
    assert one.mismatch(tenant) is why


def test_in_strict_mode_an_empty_field_matches_nothing():
    assert LEGACY.mismatch(ALICE, strict=True) is BindingMismatch.WILDCARD
    assert binding(namespace="", legacy=True).mismatch(ALICE, strict=True) is BindingMismatch.WILDCARD
    assert binding().mismatch(ALICE, strict=True) is None
    assert match_bindings([LEGACY], ALICE, strict=True).bindings == ()


@pytest.mark.parametrize(
    ("selector", "holds"),
    [
        ((Expression("tier", Operator.IN, ("gpu", "cpu")),), True),
        ((Expression("tier", Operator.IN, ("gpu",)), Expression("x", Operator.DOES_NOT_EXIST)), True),
        ((Expression("tier", Operator.IN, ("gpu",)), Expression("x", Operator.EXISTS)), False),
        ((Expression("tier", Operator.NOT_IN, ("gpu",)),), False),
        ((Expression("x", Operator.NOT_IN, ("gpu",)),), True),
        ((Expression("metadata.name", Operator.EXISTS),), False),
    ],
)
def test_all_conditions_of_a_selector_hold(selector, holds):
    assert (binding(selector=selector).mismatch(ALICE) is None) is holds


def test_a_pod_with_bindings_of_two_owners_is_a_conflict_shown_on_both():
    found = match_bindings([LEGACY, binding("a", "GPU-2")], ALICE)
    assert (found.conflict, found.owners) == (True, ("", "alice"))
    assert {(each.state, "alice" in each.reason) for each in found.conflicting} == {(BindingState.CONFLICT, True)}
    alone = match_bindings([binding("z"), binding("a", "GPU-2")], ALICE)
    assert not alone.conflict
    assert [each.name for each in alone.bindings] == ["a", "z"]
    assert alone.conflicting == ()


def test_a_binding_above_the_memory_of_its_card_is_invalid():
    capped = binding(memory_bytes=8 * GIB)
    assert capped.on(8 * GIB) is capped
    assert binding().on(0).state is BindingState.BOUND
    beyond = capped.on(8 * GIB - 1)
    assert beyond.mismatch(ALICE) is BindingMismatch.INVALID
    assert "8Gi is more than the card has" in beyond.reason


def test_types_of_accelerators_have_their_modes():
    assert supported_modes("nvidia")[0] is ShareMode.TIME_SLICE
    assert supported_modes("nvidia-gb10") == (ShareMode.MEMORY_SLICE, ShareMode.EXCLUSIVE)
    assert supported_modes("apple-m") == supported_modes("never-heard-of") == (ShareMode.EXCLUSIVE,)


_WORDS = st.sampled_from(["", "a", "b"])
_TENANTS = st.builds(Tenant, _WORDS, _WORDS, _WORDS)
_BINDINGS = st.builds(
    Binding, st.text("xyz", max_size=3), _WORDS, _WORDS, _WORDS, _WORDS, st.just(()), legacy=st.booleans()
)


@given(st.lists(_BINDINGS, max_size=6), _TENANTS, st.booleans())
def test_matching_agrees_with_a_slow_reading(bindings, tenant, strict):
    def empty_or(mine, theirs, legacy):
        return mine == theirs or (mine == "" and legacy and not strict)

    expected = [
        each
        for each in bindings
        if each.uuid
        and each.app
        and each.app == tenant.app
        and empty_or(each.owner, tenant.owner, each.legacy)
        and empty_or(each.namespace, tenant.namespace, each.legacy)
        and not (strict and "" in (each.owner, each.namespace))
    ]
    found = match_bindings(bindings, tenant, strict=strict).bindings
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
