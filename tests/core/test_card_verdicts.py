"""The verdict on one card and on one node, reason by reason, with its numbers to the unit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.books import GIB, Books, a_card, a_node

from ullage.core.books.fleet import Fleet
from ullage.core.books.usage import Usage
from ullage.core.kernel import columns, reasons
from ullage.core.kernel.verdict import judge_card, takes
from ullage.core.verdict.cards import CardVerdicts, any_takes, exclusion_of, free_cards, open_cards, refusal_of
from ullage.core.verdict.kinds import exclusion_of as kind_excludes
from ullage.core.verdict.kinds import keeps_apart
from ullage.core.verdict.nodes import closed, lacking, shortfalls, slots_short, workers_at_cap
from ullage.core.verdict.quota import Asked, Quotas
from ullage.core.verdict.shape import shape_of
from ullage.model.affinity import ANY_NODE, NODE_NAME, Expression, NodeAffinity, Operator
from ullage.model.error import Conflict
from ullage.model.gpu import Gpu, GpuPhase
from ullage.model.part import Isolation, IsolationPolicy
from ullage.model.profiles import SHIPPED
from ullage.model.quota import Caps, Quota
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement

NODE = Cure.NODE_CHANGE
ROOM = Cure.CAPACITY


def asked(text: str, **cards: object) -> ResourceRequirement:
    requirement = ResourceRequirement.from_string(text)
    return replace(requirement, cards=replace(requirement.cards, **cards)) if cards else requirement


def verdict(card: Gpu, held: tuple[str, ...], requirement: ResourceRequirement) -> tuple[object, ...] | None:
    """Code, cure, needed, had and mode of the verdict on a card on which these parts are held."""
    books = Books(a_node("n", card))
    for number, part in enumerate(held):
        books.run(f"v{number}", "n-0", of=part)
    found = refusal_of(books.fleet, 0, requirement)
    assert found is None or (found.node, found.gpu) == ("n", "n-0")
    return None if found is None else (found.code, found.cure, found.needed, found.had, found.mode)


PLAIN = a_card("n-0")
HALF = "tflops=50,vram=8g"


@pytest.mark.parametrize(
    ("card", "held", "requirement", "expected"),
    [
        pytest.param(PLAIN, (), asked("tflops=100,vram=16g"), None, id="exactly as much as it has"),
        pytest.param(PLAIN, (HALF,), asked(HALF), None, id="exactly as much as is left"),
        pytest.param(
            replace(PLAIN, used_by="x"), (), asked(HALF), (Code.USED_BY_OTHER, NODE, 0, 0, None), id="of another plugin"
        ),
        pytest.param(
            replace(PLAIN, healthy=False), (), asked(HALF), (Code.GPU_MISSING, NODE, 0, 0, None), id="missing"
        ),
        pytest.param(
            replace(PLAIN, cordoned=True), (), asked(HALF), (Code.GPU_CORDONED, NODE, 0, 0, None), id="cordoned"
        ),
        pytest.param(
            replace(PLAIN, phase=GpuPhase.PENDING),
            (),
            asked(HALF),
            (Code.GPU_NOT_RUNNING, NODE, 0, 0, None),
            id="new",
        ),
        pytest.param(
            replace(PLAIN, compute_gflops=None),
            (),
            asked("tflops=1"),
            (Code.CAPACITY_UNKNOWN, NODE, 0, 0, None),
            id="compute unknown",
        ),
        pytest.param(
            PLAIN, (), asked("tflops=101"), (Code.GPU_COMPUTE, NODE, 101_000, 100_000, None), id="more compute than all"
        ),
        pytest.param(
            PLAIN, (), asked("vram=17g"), (Code.GPU_VRAM, NODE, 17 * GIB, 16 * GIB, None), id="more memory than all"
        ),
        pytest.param(
            PLAIN, (HALF,), asked("tflops=51"), (Code.GPU_COMPUTE, ROOM, 51_000, 50_000, None), id="more than is left"
        ),
        pytest.param(
            replace(PLAIN, vendor="nvidia"), (), asked("tflops=1,gpu_vendor=nvidia"), None, id="of its vendor"
        ),
        pytest.param(
            replace(PLAIN, vendor="nvidia", model="A100"), (), asked("tflops=1,gpu_model=A100"), None, id="of its model"
        ),
        pytest.param(
            PLAIN,
            ("tflops=1,vram=1g",),
            asked("tflops=100,vram=1g"),
            (Code.GPU_COMPUTE, ROOM, 100_000, 99_000, None),
            id="all of its compute",
        ),
        pytest.param(
            PLAIN,
            ("tflops=1,vram=1g",),
            asked("tflops=1,vram=16g"),
            (Code.GPU_VRAM, ROOM, 16 * GIB, 15 * GIB, None),
            id="all of its vram",
        ),
        pytest.param(
            PLAIN,
            (HALF,),
            asked("vram=9g"),
            (Code.GPU_VRAM, ROOM, 9 * GIB, 8 * GIB, None),
            id="more vram than left",
        ),
        pytest.param(
            PLAIN, ("tflops=100,vram=1g",), asked("vram=1g"), (Code.GPU_COMPUTE, ROOM, 0, 0, None), id="no compute left"
        ),
        pytest.param(PLAIN, (HALF,), asked("gpu=1"), (Code.GPU_NOT_IDLE, ROOM, 0, 1, None), id="in use by one"),
        pytest.param(
            PLAIN,
            ("tflops=50,vram=4g",),
            asked("gpu=0.6"),
            (Code.GPU_SHARE, ROOM, 600_000, 500_000, None),
            id="a fraction, by what is short",
        ),
        pytest.param(
            PLAIN,
            ("tflops=100,vram=4g",),
            asked("gpu=0.5"),
            (Code.GPU_SHARE, ROOM, 500_000, 0, None),
            id="a fraction of a card that has no compute left",
        ),
        pytest.param(
            replace(PLAIN, max_users=2),
            ("tflops=1", "tflops=1"),
            asked("tflops=1"),
            (Code.GPU_USERS, ROOM, 3, 2, None),
            id="as many users as it may have",
        ),
        pytest.param(
            replace(PLAIN, max_users=2), ("tflops=1",), asked("tflops=1"), None, id="one user less than it may have"
        ),
        pytest.param(
            replace(PLAIN, isolation_policy=IsolationPolicy.DYNAMIC),
            ("tflops=1,isolation=soft",),
            asked("tflops=1", isolation=Isolation.HARD),
            (Code.ISOLATION_LOCKED, ROOM, 0, 0, Isolation.SOFT),
            id="its first user chose another isolation",
        ),
        pytest.param(
            replace(PLAIN, isolation_policy=IsolationPolicy.DYNAMIC),
            ("",),
            asked("tflops=1", isolation=Isolation.HARD),
            (Code.ISOLATION_LOCKED, ROOM, 0, 0, Isolation.SHARED),
            id="its user has it whole and wants no isolation",
        ),
        pytest.param(
            replace(PLAIN, isolation_policy=IsolationPolicy.DYNAMIC),
            ("tflops=1,isolation=soft", "tflops=1,isolation=hard"),
            asked("tflops=1", isolation=Isolation.SOFT),
            (Code.ISOLATION_CONFLICT, ROOM, 0, 0, None),
            id="its users have different isolations",
        ),
    ],
)
def test_the_verdict_on_a_card(card, held, requirement, expected):
    assert verdict(card, held, requirement) == expected


def test_a_card_is_excluded_by_the_first_of_its_reasons():
    card = replace(PLAIN, cordoned=True, healthy=False, model="A100", vendor="nvidia")
    found = refusal_of(Fleet([a_node("n", card)]), 0, asked("tflops=1,gpu_model=H100"))
    assert found is not None
    assert found.code is Code.GPU_MISSING


@pytest.mark.parametrize("text", ["tflops=1,gpu_model=H100", "tflops=1,gpu_vendor=amd"])
def test_terms_of_the_node_come_after_the_kind_of_the_card_and_before_its_room(text):
    elsewhere = NodeAffinity((((Expression("zone", Operator.IN, ("b",))),),))
    fleet = Fleet([a_node("n", replace(PLAIN, model="A100", vendor="nvidia"))])
    of_kind = replace(asked(text), nodes=elsewhere)
    found = exclusion_of(fleet, 0, of_kind)
    assert found is not None
    assert found.code in (Code.WRONG_MODEL, Code.WRONG_VENDOR)
    too_large = exclusion_of(fleet, 0, replace(asked("tflops=101"), nodes=elsewhere))
    assert too_large is not None
    assert (too_large.code, too_large.needed, too_large.had) == (Code.NODE_AFFINITY, 0, 0)


ON_N, ON_O = (NodeAffinity(((Expression(NODE_NAME, Operator.IN, (name,)),),)) for name in "no")
EXCLUDED = ({"pool": "p"}, {"used_by": "x"}, {"healthy": False}, {"cordoned": True}, {"phase": GpuPhase.PENDING})
FACTS = ({}, {}, *EXCLUDED, {"max_users": 1}, {"model": "A100", "vendor": "nvidia"}, {"vram_bytes": 1 << 43})
REQUESTS = (
    *("gpu=1", "tflops=10,vram=1g", "tflops=100", "tflops=101", "gpu=0.5", "vram=16g", "tflops=1,isolation=hard"),
    *("tflops=1,pool=p", "tflops=1,gpu_model=A100", "tflops=1,gpu_vendor=amd", "tflops=1,gpu_index=1"),
)


@given(
    st.lists(st.tuples(st.sampled_from(FACTS), st.lists(st.sampled_from([HALF, "tflops=1", "", "gpu=1"]), max_size=2))),
    st.sampled_from(REQUESTS),
    st.sampled_from([ANY_NODE, ON_N, ON_O]),
)
def test_a_card_alone_has_the_verdict_that_it_has_among_others(cards, text, nodes):
    """Also what excludes it, and whether it takes a share."""
    gpus = [replace(a_card("n-0"), uuid=f"n-{k}", index=k, **facts) for k, (facts, _) in enumerate(cards[:4])]
    books = Books(a_node("n", *gpus) if gpus else a_node("n"))
    for k, (_, held) in enumerate(cards[:4]):
        for number, part in enumerate(held):
            try:
                books.run(f"v{k}{number}", f"n-{k}", of=part.removeprefix("gpu=1"))
            except Conflict:
                continue
    fleet, requirement = books.fleet, replace(asked(text), nodes=nodes)
    verdicts = CardVerdicts(fleet, requirement, np.arange(len(fleet.cards)))
    for card, reason in enumerate(verdicts.reason.tolist()):
        refusal = None if reason == reasons.FITS else verdicts.rejection(card)
        assert refusal_of(fleet, card, requirement) == refusal
        assert exclusion_of(fleet, card, requirement) == (refusal if reason <= reasons.EXCLUSIONS else None)
        assert any_takes(fleet, requirement, [card]) is (refusal is None)
        assert nodes != ON_O or refusal is not None
    fits = [card for card in range(len(fleet.cards)) if refusal_of(fleet, card, requirement) is None]
    assert open_cards(fleet, 0, requirement) == fits
    assert nodes == ON_O or free_cards(fleet, requirement).tolist() == [len(fits)]


def test_more_than_the_whole_card_has_is_no_exclusion():
    assert exclusion_of(Fleet([a_node("n", PLAIN)]), 0, asked("tflops=101")) is None


def test_cards_of_one_class_differ_in_names_and_in_what_there_was():
    books = Books(a_node("n", *(a_card(f"n-{k}") for k in range(5))))
    for card, part in (("n-0", "tflops=50"), ("n-1", "tflops=60"), ("n-2", "tflops=100"), ("n-3", "tflops=10")):
        books.run(f"of {card}", card, of=part)
    verdicts = CardVerdicts(books.fleet, asked("tflops=80"), np.arange(5))
    short, shorter, none, fits, idle = verdicts.classes.tolist()
    assert short == shorter == none != fits == idle
    assert [verdicts.rejection(k).had for k in range(3)] == [50_000, 40_000, 0]
    assert verdicts.reason.tolist() == [reasons.COMPUTE, reasons.COMPUTE, reasons.COMPUTE, reasons.FITS, reasons.FITS]
    assert open_cards(books.fleet, 0, asked("tflops=80")) == [3, 4]
    assert any_takes(books.fleet, asked("tflops=80"), [2, 3])
    assert not any_takes(books.fleet, asked("tflops=80"), [0, 1, 2])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpu=32,mem=1g", []),
        ("cpu=33,mem=1g", [Rejection(Code.CPU, ROOM, 33_000, 32_000, "n")]),
        ("cpu=65,mem=1g", [Rejection(Code.CPU, NODE, 65_000, 64_000, "n")]),
        (
            "cpu=33,mem=2048g",
            [Rejection(Code.CPU, ROOM, 33_000, 32_000, "n"), Rejection(Code.MEMORY, NODE, 2**41, 2**40, "n")],
        ),
        ("mem=1024g", [Rejection(Code.MEMORY, ROOM, 2**40, 2**40 - GIB, "n")]),
    ],
)
def test_what_a_node_has_too_little_of(text, expected):
    books = Books(a_node("n")).run("v", "n-0", of="cpu=32,mem=1g,tflops=1")
    assert shortfalls(books.fleet, 0, asked(text)) == expected
    bits = sum({Code.CPU: reasons.LACKS_CPU, Code.MEMORY: reasons.LACKS_MEMORY}[each.code] for each in expected)
    assert lacking(books.fleet, asked(text)).tolist() == [bits]


def test_a_node_may_have_as_many_allocations_as_it_says_or_the_cap_says():
    books = Books(a_node("n", max_executors=2)).run("v", "n-0", of="tflops=1")
    assert slots_short(books.fleet, 0, asked("cpu=1")) is None
    assert [workers_at_cap(books.fleet, 0, asked("cpu=1"), cap) for cap in (-1, 1, 2)] == [None, (1, 1), None]
    books.run("w", "n-0", of="tflops=1")
    assert slots_short(books.fleet, 0, asked("cpu=1")) == Rejection(Code.SLOTS, ROOM, 1, 0, "n")
    assert workers_at_cap(books.fleet, 0, asked("cpu=1")) == (2, 2)
    assert lacking(books.fleet, asked("cpu=1")).tolist() == [reasons.LACKS_SLOT]


def test_a_node_with_more_allocations_than_it_may_have_has_room_for_none():
    books = Books(a_node("n")).run("v", "n-0", of="tflops=1").run("w", "n-0", of="tflops=1")
    fleet = books.fleet.rebuilt([a_node("n", max_executors=1)], books.fleet.ledger.values())
    assert slots_short(fleet, 0, asked("cpu=1")) == Rejection(Code.SLOTS, ROOM, 1, 0, "n")


def test_a_cap_of_no_allocations_keeps_even_an_empty_node_empty():
    books = Books(a_node("n"))
    assert workers_at_cap(books.fleet, 0, asked("cpu=1"), 0) == (0, 0)
    books.run("v", "n-0", of="tflops=1")
    assert workers_at_cap(books.fleet, 0, asked("cpu=1"), 0) == (1, 0)


def test_the_free_cards_of_each_node_are_those_that_take_a_share():
    books = Books(*(a_node(name, *(a_card(f"{name}-{k}") for k in range(3))) for name in "no"))
    books.run("v", "n-0", of="tflops=90").run("w", "n-1", of="tflops=50").run("x", "o-0", of="tflops=1")
    assert free_cards(books.fleet, asked("tflops=60")).tolist() == [1, 3]
    assert free_cards(books.fleet, asked("gpu=1")).tolist() == [1, 2]
    assert free_cards(books.fleet, asked("gpu=1,gpu_model=H100")).tolist() == [0, 0]


def test_a_node_is_closed_for_one_of_two_reasons():
    fleet = Fleet([a_node("a", cordoned=True), a_node("b")])
    assert closed(fleet, 0) == Rejection(Code.CORDONED, NODE, node="a")
    assert closed(fleet, 1) is None


@pytest.mark.parametrize(
    "quota",
    [
        Quota(total_requests=Caps(100, None)),
        Quota(total_requests=Caps(None, 100)),
        Quota(total_limits=Caps(100, None)),
        Quota(total_limits=Caps(None, 100)),
        Quota(max_workers=100),
        Quota(max_cores_ppm=100),
    ],
)
@pytest.mark.parametrize("more", [0, 1, 2])
def test_what_is_allowed_is_what_is_not_refused_to_the_unit(quota, more):
    """99 are used of 100, in every dimension, and 0, 1 or 2 more are asked for."""
    quotas, used = Quotas({"team": quota}), {"team": Usage(*([99] * len(Usage())))}
    request = Asked((0,) * 5, Usage(*([more] * len(Usage()))))
    ceilings = quotas.ceilings("team", request)
    assert ceilings is not None
    assert quotas.below(used, ceilings) is (more < 2)
    assert bool(quotas.check(used, "team", request)) is (more == 2)


@given(
    st.sampled_from(["gpu=1", "tflops=5,vram=4g", "gpu=1,tflops=0,vram=4g", "gpu=0.5,isolation=soft"]),
    st.tuples(*[st.integers(0, 12)] * 2),
    st.just((0, 0)) | st.tuples(st.integers(1, 3), st.integers(1, 15)),
)
def test_the_reason_of_a_refusal_is_true_and_what_is_taken_has_none(text, free, held):
    """Any state of a card of 10 TFLOPS and 10 GiB, also ones that books do not reach; each user sets a mode."""
    fleet = Fleet([a_node("n", a_card("n-0", 10, 10))])
    rows, shape = fleet.card_rows, shape_of(fleet, ResourceRequirement.from_string(text)).rows
    (compute, vram), (users, modes) = free, held
    rows[0, columns.COMPUTE_FREE], rows[0, columns.VRAM_FREE] = compute * 1000, vram * GIB
    rows[0, columns.USERS], rows[0, columns.MODES] = users, modes
    reason, needed, had = map(int, judge_card(rows, 0, shape))
    assert (reason == reasons.FITS) is bool(takes(rows, 0, shape))
    true = {
        reasons.FITS: compute > 0 and not modes & 1 and not (users and text == "gpu=1"),
        reasons.LOCKED: had & modes != 0,
        reasons.NOT_IDLE: users > 0,
        reasons.NO_COMPUTE: compute <= 0 or modes & 1 != 0,
    }
    assert true.get(reason, needed > had)


@pytest.mark.parametrize(
    ("partitions", "text", "reason"),
    [
        (None, "gpu=1", reasons.FITS),
        ((), "gpu=1", reasons.ISOLATION_POLICY),
        ((), "tflops=1", reasons.ISOLATION_POLICY),
        ((), "tflops=1,isolation=partitioned", reasons.NO_TEMPLATE),
    ],
)
def test_a_card_that_is_in_partitions_takes_no_other_request(partitions, text, reason):
    card = replace(PLAIN, model="A100", partitions=partitions, isolation=Isolation.PARTITIONED if partitions else None)
    assert kind_excludes(card, asked(text), SHIPPED) == reason
    assert keeps_apart(card, asked(text)) is (reason != reasons.ISOLATION_POLICY)


@pytest.mark.parametrize(
    ("policy", "of_static", "supported", "text", "reason"),
    [
        (IsolationPolicy.STATIC, None, None, "tflops=1", reasons.FITS),
        (IsolationPolicy.STATIC, Isolation.HARD, None, "tflops=1", reasons.ISOLATION_POLICY),
        (IsolationPolicy.STATIC, Isolation.SOFT, None, "tflops=1", reasons.FITS),
        (IsolationPolicy.STATIC, Isolation.HARD, None, "gpu=1", reasons.FITS),
        (IsolationPolicy.STATIC, None, {Isolation.HARD}, "tflops=1", reasons.ISOLATION_UNSUPPORTED),
        (IsolationPolicy.STATIC, None, {Isolation.SOFT}, "tflops=1", reasons.FITS),
        (IsolationPolicy.DYNAMIC, None, {Isolation.HARD}, "tflops=1", reasons.ISOLATION_UNSUPPORTED),
        (IsolationPolicy.DYNAMIC, None, {Isolation.SOFT}, "tflops=1,isolation=partitioned", reasons.ISOLATION_POLICY),
    ],
)
@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("", None),
        (",gpu_model=A100", None),
        (",gpu_vendor=nvidia", None),
        (",gpu_model=A100,gpu_vendor=nvidia", None),
        (",gpu_model=H100", reasons.WRONG_MODEL),
        (",gpu_vendor=amd", reasons.WRONG_VENDOR),
        (",gpu_model=H100,gpu_vendor=nvidia", reasons.WRONG_MODEL),
        (",gpu_model=A100,gpu_vendor=amd", reasons.WRONG_VENDOR),
    ],
)
def test_an_isolation_that_a_card_does_not_have_is_the_reason_unless_its_kind_is_not_requested(
    policy, of_static, supported, text, reason, kind, wrong
):
    """An isolation policy comes before the kind in any case."""
    facts = {"isolation_policy": policy, "isolation": of_static, "isolations": supported and frozenset(supported)}
    card = replace(PLAIN, model="A100", vendor="nvidia", **facts)
    found = kind_excludes(card, asked(text + kind), SHIPPED)
    assert found == (wrong if wrong and reason != reasons.ISOLATION_POLICY else reason)
    assert keeps_apart(card, asked(text + kind)) is (
        found not in (reasons.ISOLATION_POLICY, reasons.ISOLATION_UNSUPPORTED)
    )
