"""Requests of pods with HAMi's resources."""

import pytest

from tests.wire.hami.pods import ACME, CORES, GPU, MEMORY, MIB, PERCENT, PRIORITY, asked_by, limits, nvidia, pod
from ullage.model.alignment import Alignment, AlignmentStage, ContainerNeeds
from ullage.model.error import InvalidAnnotation, InvalidRequest
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.quantity import PPM
from ullage.model.topology import ZonePolicy
from ullage.wire.hami.request import read_hami
from ullage.wire.hami.sharing import share_out
from ullage.wire.pod import PodDefaults
from ullage.wire.vendors.containers import container_requests
from ullage.wire.vendors.shipped import NVIDIA

SIDECAR = {"restartPolicy": "Always"}


def own(**annotations):
    return {f"nvidia.com/{name.replace('_', '-')}": value for name, value in annotations.items()}


def hami(**annotations):
    return {f"hami.io/{name.replace('_', '-')}": value for name, value in annotations.items()}


# --- amounts ---


@pytest.mark.parametrize(
    ("container", "count", "part"),
    [
        (limits(gpu=1, mem=3000, cores=30), 1, Part(vram_bytes=3000 * MIB, compute_ppm=300_000)),
        (limits(gpu="2", mem="3k"), 2, Part(vram_bytes=3000 * MIB)),
        (limits(gpu=1, percent=50, cores=25), 1, Part(vram_ppm=500_000, compute_ppm=250_000)),
        (limits(mem=1000), 1, Part(vram_bytes=1000 * MIB)),
        (limits(cores=10), 1, Part(vram_ppm=PPM, compute_ppm=100_000)),
        (limits(gpu=1, percent=0, cores=10), 1, Part(vram_ppm=PPM, compute_ppm=100_000)),
        (limits(gpu=1, mem=1000, percent=50), 1, Part(vram_bytes=1000 * MIB)),
        (limits(gpu=1, mem=1000, kind="requests"), 1, Part(vram_bytes=1000 * MIB)),
    ],
)
def test_parts_of_cards(container, count, part):
    asked = asked_by(container)
    assert (asked.gpu_count, asked.part, asked.cards) == (
        *(count, part),
        CardSelector(vendors=("NVIDIA",), isolation=Isolation.SOFT),
    )


@pytest.mark.parametrize(
    "container",
    [limits(gpu=1), limits(gpu=1, percent=100), limits(gpu=1, cores=100), limits(gpu=1, percent=100, cores=150)],
)
def test_whole_cards_are_held_exclusively(container):
    asked = asked_by(container)
    assert (asked.whole, asked.part, asked.cards.isolation) == (True, None, Isolation.SHARED)


def test_all_cores_hold_the_card_whole_and_the_memory_stays_requested():
    asked = asked_by(limits(gpu=1, mem=1000, cores=100))
    assert (asked.whole, asked.part) == (True, Part(vram_bytes=1000 * MIB, compute_ppm=PPM))


def test_limits_take_precedence_over_requests():
    both = {"resources": {"limits": {GPU: 1, MEMORY: 2000}, "requests": {GPU: 3, MEMORY: 1000, CORES: 20}}}
    assert asked_by(both).part == Part(vram_bytes=2000 * MIB, compute_ppm=200_000)
    assert asked_by(both).gpu_count == 1


@pytest.mark.parametrize("container", [{}, limits(), limits(gpu=0), limits(gpu=0, mem=100), limits(priority=1)])
def test_without_cards_there_is_no_request(container):
    assert read_hami(pod(container)) is None


@pytest.mark.parametrize(
    ("resource", "value"),
    [
        *(
            (MEMORY, "1.5"),
            (MEMORY, "500m"),
            (MEMORY, "-1"),
            (MEMORY, "x"),
            (MEMORY, True),
            (MEMORY, "8Gi"),
            (MEMORY, []),
        ),
        *((PERCENT, 101), (PERCENT, "-1"), (PERCENT, "50%"), (PERCENT, "0.5"), (CORES, "1.5"), (CORES, "-1")),
        *((GPU, 129), (GPU, "1.5"), (GPU, "one"), (PRIORITY, 2), (PRIORITY, "-1")),
    ],
)
def test_amounts_that_hami_would_ignore_are_refused(resource, value):
    with pytest.raises(InvalidRequest) as caught:
        read_hami(pod({}, limits(gpu=1, **{resource: value}) if resource != GPU else limits(gpu=value)))
    assert caught.value.field == f"spec.containers[1].resources.limits.{resource}"


def test_defaults_are_those_of_the_configuration():
    words = nvidia(memory={"default_mib": 4000, "unit_mib": 10}, cores={"default": 20}, count={"default": 2})
    assert read_hami(pod(limits(gpu=1)), words).requirement.part == Part(vram_bytes=4000 * MIB, compute_ppm=200_000)
    asked = read_hami(pod(limits(mem=100)), words).requirement
    assert (asked.gpu_count, asked.part) == (2, Part(vram_bytes=1000 * MIB, compute_ppm=200_000))
    assert read_hami(pod(limits(gpu=1, percent=50)), words).requirement.part == Part(
        vram_ppm=500_000, compute_ppm=200_000
    )


def test_other_vendors_have_other_names():
    document = pod(
        {"resources": {"limits": {"acme.com/card": 1, "acme.com/mem": 10}}}, annotations={"acme.com/use-gputype": "X1"}
    )
    cards = read_hami(document, ACME).requirement.cards
    assert (cards.vendors, cards.model_words) == (("Acme",), ("X1",))
    assert read_hami(document, NVIDIA) is None


# --- containers ---


def test_the_peak_of_all_containers_counts():
    app, init = limits(gpu=1, mem=100), limits(gpu=3, mem=100)
    assert asked_by(app, app).gpu_count == 2
    assert asked_by(app, app, init=[init]).gpu_count == 3
    assert asked_by(app, app, init=[init | SIDECAR]).gpu_count == 5
    assert asked_by(app, init=[app | SIDECAR, init]).gpu_count == 4
    with pytest.raises(InvalidRequest, match="at most 128"):
        read_hami(pod(limits(gpu=100), limits(gpu=100)))


def test_counts_per_container_are_kept():
    two = read_hami(pod(limits(gpu=1, mem=100), {}, limits(gpu=2, mem=100)))
    assert two.container_gpu_counts == {"c0": 1, "c2": 2}
    assert read_hami(pod(limits(gpu=2, mem=100))).container_gpu_counts == {}
    assert read_hami(pod(limits(gpu=1), limits(gpu=1), init=[limits(gpu=4)])).container_gpu_counts == {}


def test_every_card_is_requested_with_the_largest_amounts_of_the_containers():
    request = read_hami(pod(limits(gpu=1, mem=100, cores=10), limits(gpu=1, mem=300, cores=5)))
    assert request.requirement.part == Part(vram_bytes=300 * MIB, compute_ppm=100_000)
    assert "the largest is requested of every card" in request.warnings[0]
    assert asked_by(limits(gpu=1, mem=100), limits(gpu=1)).whole
    with pytest.raises(InvalidRequest, match="gpumem-percentage"):
        read_hami(pod(limits(gpu=1, mem=100), limits(gpu=1, percent=50)))


def test_cards_of_an_init_container_go_to_later_containers():
    asks = container_requests(
        pod(limits(gpu=1), {}, limits(gpu=2), init=[limits(gpu=2), limits(gpu=1) | SIDECAR, limits(gpu=1)]), NVIDIA
    )
    assert [ask.stage for ask in asks] == [
        AlignmentStage.INIT,
        AlignmentStage.SIDECAR,
        AlignmentStage.INIT,
        *[AlignmentStage.APP] * 3,
    ]
    assert list(share_out(asks, ["a", "b", "c", "d"])) == [("a", "b"), ("a",), ("b",), ("b",), (), ("c", "d")]


def test_task_priorities_are_kept():
    asks = container_requests(pod(limits(gpu=1, priority=1), limits(gpu=1, priority="0"), limits(gpu=1)), NVIDIA)
    assert [ask.task_priority for ask in asks] == [1, 0, None]


# --- which cards ---


def test_cards_are_named_and_excluded_by_type_and_uuid():
    cards = asked_by(
        limits(gpu=1, mem=1),
        annotations=own(use_gputype="A100, h100,", nouse_gputype="PCIe", use_gpuuuid=" a , b ,a", nouse_gpuuuid="b"),
    ).cards
    assert cards.model_words == ("A100", "h100")
    assert cards.not_model_words == ("PCIe",)
    assert (cards.uuids, cards.not_uuids) == (("a", "b"), ("b",))
    assert [uuid for uuid in "abc" if cards.takes_uuid(uuid)] == ["a"]
    nothing = asked_by(limits(gpu=1, mem=1), annotations=own(use_gpuuuid=" ", nouse_gpuuuid=",", use_gputype="")).cards
    assert nothing == asked_by(limits(gpu=1, mem=1)).cards


def test_modes_of_a_pod():
    assert asked_by(limits(gpu=1, mem=1), annotations=own(vgpu_mode="mig")).cards.isolation is Isolation.PARTITIONED
    sliced = asked_by(limits(gpu=1), annotations=own(vgpu_mode="mig"))
    assert (sliced.cards.isolation, sliced.part) == (Isolation.PARTITIONED, Part(compute_ppm=PPM, vram_ppm=PPM))
    hard = PodDefaults(pool="p", isolation=Isolation.HARD)
    for annotations, isolation in (({}, Isolation.HARD), (own(vgpu_mode="hami-core"), Isolation.SOFT)):
        cards = read_hami(pod(limits(gpu=1, mem=1), annotations=annotations), defaults=hard).requirement.cards
        assert (cards.isolation, cards.pool) == (isolation, "p")


def test_our_own_annotations_supply_the_rest():
    request = read_hami(pod(limits(gpu=1, mem=1), annotations={"ullage.io/gpupool": "q", "ullage.io/qos": "low"}))
    assert (request.requirement.cards.pool, request.claim.qos.value) == ("q", "low")
    assert (request.uid, request.claim.namespace, request.domain) == ("u-1", "team", "ullage.io")


# --- policies ---


@pytest.mark.parametrize(
    ("node", "card", "strategy"),
    [
        (None, None, None),
        ("binpack", "binpack", "compact-first"),
        ("binpack", "spread", "node-compact-gpu-low-load"),
        ("spread", "spread", "low-load-first"),
        ("spread", "binpack", "node-low-load-gpu-compact"),
        ("spread", None, "low-load-first"),
        (None, "binpack", "compact-first"),
        (None, "topology-aware, binpack", "compact-first"),
        (None, "topology-aware", None),
    ],
)
def test_policies_are_strategies(node, card, strategy):
    reported = {"node_scheduler_policy": node, "gpu_scheduler_policy": card}
    annotations = hami(**{name: value for name, value in reported.items() if value})
    request = read_hami(pod(limits(gpu=1, mem=1), annotations=annotations))
    assert request.strategy == request.request.strategy == strategy


def test_mutex_requests_cards_without_other_users():
    asked = asked_by(limits(gpu=1, mem=100, cores=10), annotations=hami(gpu_scheduler_policy="mutex,spread"))
    assert (asked.whole, asked.part) == (True, Part(vram_bytes=100 * MIB, compute_ppm=100_000))


def test_weights_give_a_warning():
    request = read_hami(pod(limits(gpu=1), annotations=hami(device_scoring_weights="slot=1,core=1, memory=3")))
    assert "hami.io/device-scoring-weights" in request.warnings[0]


@pytest.mark.parametrize(
    "annotations",
    [
        hami(node_scheduler_policy="mutex"),
        hami(gpu_scheduler_policy="binpack,best"),
        *(
            hami(device_scoring_weights=text)
            for text in ("slot=1", "slot=0,core=0,memory=0", "slot=-1,core=1,memory=1")
        ),
        *(hami(device_scoring_weights=text) for text in ("slot=1,core=1,memory=1,slot=1", "slot=1,core=1,disk=1", "x")),
        *(own(numa_bind="maybe"), own(vgpu_mode="time"), own(use_gpuuuid=3)),
        own(numa_bind="true") | {"ullage.io/numa-policy": "restricted"},
        own(use_gputype=",".join(map(str, range(1025)))),
        own(use_gputype="A100|H100"),
        own(nouse_gpuuuid="a=b"),
    ],
)
def test_annotations_that_cannot_be_read_are_refused_by_their_key(annotations):
    with pytest.raises(InvalidAnnotation) as caught:
        read_hami(pod(limits(gpu=1, mem=1), annotations=annotations))
    assert caught.value.field in annotations


# --- zones ---


def test_numa_bind_has_the_cards_of_each_container_in_one_zone():
    asked = asked_by(limits(gpu=2, mem=1), {}, limits(gpu=1, mem=1), annotations=own(numa_bind="True"))
    needs = (ContainerNeeds("c0", devices=(("gpu", 2),)), ContainerNeeds("c2", devices=(("gpu", 1),)))
    assert asked.alignment == Alignment(ZonePolicy.SINGLE_ZONE, needs)
    near = asked_by(limits(gpu=2, mem=1), annotations=hami(gpu_scheduler_policy="numa"))
    assert near.alignment.policy is ZonePolicy.BEST_EFFORT
    assert asked_by(limits(gpu=2, mem=1), annotations=own(numa_bind="false")).alignment == Alignment()


def test_amounts_of_cards_are_not_aligned_as_devices_and_others_are():
    asked = asked_by(limits(gpu=1, mem=3000, cores=30, **{"rdma/hca": 1}), limits(mem=10))
    assert [needs.devices for needs in asked.alignment.containers] == [(("gpu", 1), ("rdma/hca", 1)), (("gpu", 1),)]
