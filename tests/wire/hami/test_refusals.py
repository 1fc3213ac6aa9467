"""HAMi's refusals: their order, their numbers, and our codes for each."""

import pytest

from tests.wire.hami.pods import MIB, limits, pod
from ullage.core.books.fleet import Fleet
from ullage.core.placing.candidates import find
from ullage.core.placing.rules import Rules
from ullage.core.verdict.sentences import CURES, MEANINGS
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.claim import Request
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import ANY_CARD, CardSelector, Isolation, Part
from ullage.model.quantity import PPM
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement
from ullage.wire.hami.admission import check_pod, ignores
from ullage.wire.hami.refusals import refusal_text
from ullage.wire.hami.request import read_hami


def card(name, **facts):
    return Gpu(name, 0, **({"vram_bytes": 8000 * MIB, "vendor": "NVIDIA", "model": "A100"} | facts))


def used(name, mib=1000, cores=0):
    """Somebody who has a part of a card, or all of it."""
    whole = cores == 100
    mode = Isolation.SHARED if whole else Isolation.SOFT
    part = None if whole else Part(vram_bytes=mib * MIB, compute_ppm=cores * PPM // 100)
    asked = ResourceRequirement(0, 0, 1, part, ANY_CARD if whole else CardSelector(isolation=mode))
    charges = () if whole else (Charge(cores * PPM // 100, mib * MIB, mode),)
    return Allocation(f"on-{name}", "n", asked, (name,), AllocationState.BOUND, charges)


def refusal(gpus, container, held=(), mutex=False, **more):
    """The text for a pod against one node, as the filters find it; and whether freed capacity could help."""
    fleet = Fleet([Node("n", 8000, 2**36, tuple(gpus))], held)
    asked = read_hami(pod(container, **more))
    found = find(fleet, Rules(), Request("p", asked.requirement))
    assert not found.by_node
    against = [rejection for stage in found.stages for rejection in stage.removed]
    count = asked.requirement.gpu_count
    return refusal_text(against, len(gpus), count, mutex=mutex), found.curable


SMALL = limits(gpu=1, mem=1000, cores=20)
A_AND_B = [card("a"), card("b")]


@pytest.mark.parametrize(
    ("gpus", "container", "held", "expected"),
    [
        ([card("a", healthy=False)], SMALL, (), ("1/1 CardNotHealth", False)),
        ([card("a", cordoned=True), card("b", cordoned=True)], SMALL, (), ("2/2 CardCordoned", False)),
        (
            [card("a", vendor="AMD"), card("b", isolation=Isolation.PARTITIONED)],
            SMALL,
            (),
            ("2/2 CardTypeMismatch", False),
        ),
        (A_AND_B, limits(gpu=1, mem=9000), (), ("2/2 CardInsufficientMemory", False)),
        (A_AND_B, limits(gpu=1, mem=7500), (used("a"), used("b")), ("2/2 CardInsufficientMemory", True)),
        (
            A_AND_B,
            limits(gpu=1, mem=1, cores=50),
            (used("a", 1, 60), used("b", 1, 60)),
            ("2/2 CardInsufficientCore", True),
        ),
        ([card("a")], limits(gpu=1), (used("a"),), ("1/1 ExclusiveDeviceAllocateConflict", True)),
        ([card("a")], limits(gpu=1, mem=100, cores=100), (used("a"),), ("1/1 ExclusiveDeviceAllocateConflict", True)),
        ([card("a")], limits(gpu=1, mem=100), (used("a", cores=100),), ("1/1 CardInsufficientMemory", True)),
        (A_AND_B, limits(gpu=3, mem=1), (), ("NodeInsufficientDevice", False)),
        (
            *(A_AND_B, limits(gpu=2, mem=7500), (used("a"),)),
            ("1/2 CardInsufficientMemory, 1/2 AllocatedCardsInsufficientRequest", True),
        ),
        (
            [card("a", healthy=False), card("b", vendor="AMD"), card("c"), card("d", cordoned=True)],
            *(limits(gpu=1, mem=7500), (used("c"),)),
            ("1/4 CardNotHealth, 1/4 CardCordoned, 1/4 CardTypeMismatch, 1/4 CardInsufficientMemory", True),
        ),
        ([card("a", max_users=1)], SMALL, (used("a"),), ("1/1 CardTimeSlicingExhausted", True)),
        ([], SMALL, (), ("node unregistered", False)),
    ],
)
def test_refusals_have_the_texts_of_hami(gpus, container, held, expected):
    assert refusal(gpus, container, held) == expected


def test_names_types_and_mutex():
    own = {"nvidia.com/use-gpuuuid": "b"}
    assert refusal([card("a")], SMALL, annotations=own) == ("1/1 CardUuidMismatch", False)
    own = {"nvidia.com/nouse-gputype": "a100"}
    assert refusal(A_AND_B, SMALL, annotations=own) == ("2/2 CardTypeMismatch", False)
    own = {"hami.io/gpu-scheduler-policy": "mutex"}
    assert refusal(A_AND_B, SMALL, (used("a"), used("b")), mutex=True, annotations=own)[0] == "2/2 mutex busy"
    two = limits(gpu=2, mem=1)
    assert refusal(A_AND_B, two, (used("a"),), mutex=True, annotations=own)[0].startswith("1/2 mutex busy")


@pytest.mark.parametrize(
    ("rejection", "text"),
    [
        (Rejection(Code.GPU_COMPUTE, Cure.CAPACITY, 0, 0, "n", "a"), "1/2 CardComputeUnitsExhausted"),
        (Rejection(Code.GPU_COMPUTE, Cure.CAPACITY, 1, 0, "n", "a"), "1/2 CardInsufficientCore"),
        (
            Rejection(Code.ISOLATION_LOCKED, Cure.CAPACITY, gpu="a", mode=Isolation.SHARED),
            "1/2 CardComputeUnitsExhausted",
        ),
        (Rejection(Code.ISOLATION_LOCKED, Cure.CAPACITY, gpu="a", mode=Isolation.HARD), "1/2 CardTypeMismatch"),
        (Rejection(Code.NO_PARTITION_SLOT, Cure.CAPACITY, gpu="a"), "1/2 CardMigTopologyInfeasible"),
        (Rejection(Code.QUOTA_TOTAL_VRAM_LIMIT, Cure.QUOTA, gpu="a"), "1/2 ResourceQuotaNotFit"),
        (Rejection(Code.WORKER_CAP, Cure.CAPACITY, gpu="a"), "1/2 CardTimeSlicingExhausted"),
        (Rejection(Code.NOT_ALIGNED, Cure.CAPACITY, gpu="a"), "1/2 NumaNotFit"),
        (Rejection(Code.NOT_READY, Cure.NODE_CHANGE, gpu="a"), "node-not-ready"),
        (Rejection(Code.NODE_TAINTED, Cure.NODE_CHANGE, gpu="a"), "node-tainted"),
    ],
)
def test_each_rejection_has_its_text(rejection, text):
    assert refusal_text([rejection], 2) == text


def test_every_code_has_a_text_without_names_and_amounts():
    for code in Code:
        text = refusal_text([Rejection(code, Cure.CAPACITY, 7, 3, "node-x", "GPU-x")], 1)
        assert "node-x" not in text
        assert "GPU-x" not in text
        assert len(text) < 60
    assert refusal_text([Rejection(Code.CPU, Cure.CAPACITY, gpu=gpu) for gpu in "ab"], 2) == "insufficient-cpu"
    assert refusal_text([Rejection(Code.WRONG_POOL, Cure.NODE_CHANGE, gpu="a")], 2) == "1/2 wrong-pool"
    assert {Code.WRONG_UUID, Code.GPU_CORDONED} <= CURES.keys() & MEANINGS.keys()


def test_equal_refusals_have_equal_texts():
    one, other = (
        Rejection(Code.GPU_VRAM, Cure.CAPACITY, 5, 3, "n", "a"),
        Rejection(Code.GPU_MISSING, Cure.NODE_CHANGE, gpu="b"),
    )
    again = [
        Rejection(Code.GPU_MISSING, Cure.NODE_CHANGE, gpu="x"),
        Rejection(Code.GPU_VRAM, Cure.CAPACITY, 9, 1, "m", "y"),
    ]
    assert refusal_text([one, other], 2) == refusal_text(again, 2) == "1/2 CardNotHealth, 1/2 CardInsufficientMemory"


def test_the_webhook_refuses_pods_that_could_access_other_cards():
    check_pod(pod(SMALL), scheduler="ullage")
    check_pod(pod(SMALL, spec={"nodeName": "n"}))
    for wrong, scheduler in (
        (pod(), "ullage"),
        (pod(SMALL, spec={"nodeName": "n"}), "ullage"),
        (pod(SMALL | {"securityContext": {"privileged": True}}), ""),
        (pod(SMALL, init=[{"securityContext": {"privileged": True}}]), ""),
    ):
        with pytest.raises(InvalidRequest, match=r"^spec\."):
            check_pod(wrong, scheduler=scheduler)
    assert ignores({"hami.io/webhook": "ignore"})
    assert not ignores({"hami.io/webhook": "yes"})
    assert not ignores({})
