"""A refusal of named cards or nodes says what was asked and what there is."""

from dataclasses import replace

import pytest

from ullage.core.books.fleet import Fleet
from ullage.core.explaining.explain import reject
from ullage.core.explaining.summary import summary
from ullage.core.placing.decision import Refusal
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import place
from ullage.core.sharing.world import Demand
from ullage.core.verdict.cards import exclusion_of
from ullage.core.verdict.sentences import first_text, reject_text
from ullage.model.affinity import Expression, NodeAffinity, Operator
from ullage.model.claim import Request
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import Isolation
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement

A100 = [Gpu(f"GPU-a{n}", n, "A100", "NVIDIA", vram_bytes=40 << 30, pool="training") for n in range(2)]
MI300 = [Gpu("GPU-b0", 0, "MI300X", "AMD", vram_bytes=192 << 30)]
FLEET = Fleet([Node("n1", 8000, 64 << 30, tuple(A100)), Node("n2", 8000, 64 << 30, tuple(MI300))])


def asked(text: str) -> ResourceRequirement:
    return ResourceRequirement.from_string(f"gpu=1,{text}")


CASES = {
    "gpu_model=H100": "the card is of another model: it asks for model H100; there are A100, MI300X",
    "gpu_model=H100|L4": "the card is of another model: it asks for model H100 or L4; there are A100, MI300X",
    "gpu_model_like=h100": "the card is of another model: it asks for a model like h100; there are A100, MI300X",
    "gpu_vendor=Intel": "the card is of another vendor: it asks for vendor Intel; there are NVIDIA, AMD",
    "pool=nowhere": "the card is of another pool: it asks for pool nowhere; there are training, no pool",
    "gpu_index=7": "another card is named: it asks for index 7; there are 0, 1",
    "gpu_uuid=GPU-x": (
        "other cards are named by their uuids, or this one is excluded: "
        "it asks for uuid GPU-x; there are GPU-a0, GPU-a1, GPU-b0"
    ),
}


@pytest.mark.parametrize("text", CASES)
def test_a_session_that_names_what_is_not_there_is_told_what_is(text):
    request = asked(text)
    said = summary(Code.TOO_LARGE, Demand("s", 1, request), reject(FLEET, request))
    assert said == f"no node can take it: {CASES[text]}"


def test_a_node_says_what_its_own_cards_are():
    first, *_ = reject(FLEET, asked("gpu_model=H100"))
    assert reject_text(first) == "the card is of another model: it asks for model H100; there is A100"


def test_many_kinds_are_cut_short():
    cards = tuple(Gpu(f"GPU-{n}", n, f"model-{n}") for n in range(8))
    rejections = reject(Fleet([Node("n", 8000, 64 << 30, cards)]), asked("gpu_model=H100"))
    assert first_text(rejections).endswith("there are model-0, model-1, model-2, model-3, model-4, 3 more")


TERMS = NodeAffinity(
    required=(
        (Expression("zone", Operator.IN, ("a", "b")), Expression("disk", Operator.EXISTS)),
        (Expression("old", Operator.DOES_NOT_EXIST),),
    )
)


def test_a_node_that_misses_the_terms_shows_its_labels():
    node = Node("n1", 8000, 64 << 30, tuple(A100), labels={"zone": "c", "old": "yes", "other": "x"})
    request = replace(ResourceRequirement.of(gpu=1), nodes=TERMS)
    rejection = exclusion_of(Fleet([node]), 0, request)
    assert rejection is not None
    assert rejection.code is Code.NODE_AFFINITY
    assert reject_text(rejection) == (
        "the node does not meet the request's terms: it asks for zone=a|b and disk or no old; "
        "there is node n1 with old=yes,zone=c without disk"
    )


def test_many_nodes_that_miss_the_terms_show_their_labels_as_few_do():
    """Of many cards one of each kind is asked about."""
    gpus = [[Gpu(f"GPU-{n}-{k}", k) for k in range(2)] for n in range(40)]
    zones = ({"zone": "c", "old": ""}, {"zone": "d", "old": ""})
    nodes = [Node(f"n{n:02}", 8000, 64 << 30, tuple(cards), labels=zones[n % 2]) for n, cards in enumerate(gpus)]
    request = Request("u", replace(ResourceRequirement.of(gpu=1), nodes=TERMS))
    refused = place(Fleet(nodes), Rules(), request)
    assert isinstance(refused, Refusal)
    assert str(refused) == (
        "node-affinity: the node does not meet the request's terms: it asks for zone=a|b and disk or no old; "
        "there are node n00 with old=,zone=c without disk, node n01 with old=,zone=d without disk, "
        "node n02 with old=,zone=c without disk, node n03 with old=,zone=d without disk, "
        "node n04 with old=,zone=c without disk, 35 more"
    )


@pytest.mark.parametrize(
    ("code", "needed", "said"),
    [(Code.GPU, 1, "1 GPU,"), (Code.GPU, 2, "2 GPUs,"), (Code.SLOTS, 1, "1 executor,"), (Code.GPU, 11, "11 GPUs,")],
)
def test_one_of_an_amount_has_the_noun_of_one(code, needed, said):
    assert said in reject_text(Rejection(code, Cure.CAPACITY, needed, 0))


def test_long_lists_of_names_and_terms_are_shown_in_part():
    names = "|".join(f"m{number}" for number in range(1000))
    shown = " or ".join(f"m{number}" for number in range(16))
    for key, thing in {"gpu_model": "model", "gpu_uuid": "uuid", "gpu_model_like": "a model like"}.items():
        rejection, *_ = reject(FLEET, asked(f"{key}={names}"))
        assert f"it asks for {thing} {shown} or 984 more; " in reject_text(rejection)
    terms = tuple((Expression(f"k{number}", Operator.EXISTS),) for number in range(1000))
    rejection = exclusion_of(FLEET, 0, replace(ResourceRequirement.of(gpu=1), nodes=NodeAffinity(terms)))
    assert rejection is not None
    text = reject_text(rejection)
    assert "k15 or 984 more; " in text
    assert "k16" not in text


OTHERS = {
    "gpu_uuid=GPU-x": Code.WRONG_UUID,
    "not_gpu_uuid=GPU-u": Code.WRONG_UUID,
    "gpu_index=7": Code.WRONG_INDEX,
    "gpu_model=H100": Code.WRONG_MODEL,
    "gpu_vendor=AMD": Code.WRONG_VENDOR,
    "pool=nowhere": Code.WRONG_POOL,
    "isolation=hard": Code.ISOLATION_UNSUPPORTED,
}


@pytest.mark.parametrize("text", OTHERS)
def test_that_a_capacity_is_unknown_is_said_only_of_cards_that_nothing_else_excludes(text: str) -> None:
    card = Gpu("GPU-u", 0, "T", "NVIDIA", isolations=frozenset({Isolation.SOFT}))
    fleet = Fleet([Node("n1", 8000, 64 << 30, (card,), labels={"zone": "c", "old": ""})])
    first, *_ = reject(fleet, asked(f"vram=1g,{text}"))
    assert first.code is OTHERS[text]
    plain = asked("vram=1g")
    unknown, *_ = reject(fleet, plain)
    assert unknown.code is Code.CAPACITY_UNKNOWN
    elsewhere, *_ = reject(fleet, replace(plain, nodes=TERMS))
    assert elsewhere.code is Code.NODE_AFFINITY
