"""The dialect of a pod; two dialects are refused."""

from dataclasses import replace

import pytest

from tests.wire.hami.pods import ACME, CORES, MEMORY, MIB, limits, nvidia, pod
from ullage.model.error import InvalidAnnotation, InvalidRequest
from ullage.model.part import Isolation, Part
from ullage.wire.dialect import PodReader, PodSettings
from ullage.wire.hami.request import read_hami
from ullage.wire.pod import Dialect, PodDefaults, compose_request
from ullage.wire.vendors.shipped import NVIDIA


def read_pod(document, settings=PodSettings()):  # noqa: B008 - a frozen value
    return PodReader(settings)(document)


def plainly(asked):
    claim = replace(asked.claim, quota="")
    return replace(asked, dialect=Dialect.OURS, devices=None, claim=claim)


BOTH = PodSettings(families=(NVIDIA, ACME))
AMD = {"resources": {"limits": {"amd.com/gpu": 1}}}
INTEL = {"resources": {"limits": {"gpu.intel.com/xe": 1}}}
OURS = {"ullage.io/vram-request": "8Gi"}
THEIRS = {"tensor-fusion.ai/vram-request": "8Gi"}


@pytest.mark.parametrize(
    ("document", "dialect"),
    [
        (pod({}), None),
        (pod(limits(gpu=0)), None),
        (pod({}, annotations={"nvidia.com/use-gpuuuid": "a", "hami.io/vgpu-node": "n"}), None),
        (pod({}, annotations={"ullage.io/gpu-ids": "GPU-a", "ullage.io/partition-id": "x"}), None),
        (pod({}, annotations=OURS), Dialect.OURS),
        (pod(limits(gpu=1), annotations=OURS), Dialect.OURS),
        (pod({}, annotations={"ullage.io/gpupool": "p"}), Dialect.OURS),
        (pod(AMD, annotations={"ullage.io/gpupool": "p"}), Dialect.PLAIN),
        (pod({}, annotations=THEIRS), Dialect.TENSOR_FUSION),
        (pod(limits(gpu=1)), Dialect.PLAIN),
        (pod(AMD), Dialect.PLAIN),
        (pod(AMD, annotations={"nvidia.com/use-gputype": "A100"}), Dialect.PLAIN),
        (pod({}, init=[limits(gpu=1)]), Dialect.PLAIN),
        (pod(limits(gpu=1), annotations={"nvidia.com/use-gputype": "A100"}), Dialect.HAMI),
        (pod(limits(gpu=1), annotations={"hami.io/gpu-scheduler-policy": "binpack"}), Dialect.HAMI),
        (pod(limits(gpu=1, mem=1), annotations={"ullage.io/gpupool": "p"}), Dialect.HAMI),
        (pod({}, limits(mem=1)), Dialect.HAMI),
        (
            pod(
                {"resources": {"limits": {"acme.com/mem": 1}}}, annotations={"hami.io/node-scheduler-policy": "spread"}
            ),
            Dialect.HAMI,
        ),
    ],
)
def test_the_dialect_of_a_pod(document, dialect):
    asked = read_pod(document, BOTH)
    assert (None if asked is None else asked.dialect) is dialect


def test_each_dialect_is_read_by_its_own_rules():
    defaults = PodDefaults("warm", Isolation.HARD)
    settings = PodSettings(defaults=defaults)
    hami = pod(limits(gpu=1, mem=1000))
    assert read_pod(hami, settings) == read_hami(hami, defaults=defaults)
    plain = pod(limits(gpu=2))
    assert plainly(read_pod(plain, settings)) == compose_request(plain, defaults=defaults)
    theirs = pod({}, annotations=THEIRS)
    assert plainly(read_pod(theirs, settings)) == compose_request(theirs, "tensor-fusion.ai", defaults=defaults)
    assert read_pod(theirs, settings).domain == "tensor-fusion.ai"
    configured = PodSettings(domain="tensor-fusion.ai")
    assert read_pod(theirs, configured).dialect is Dialect.OURS
    assert plainly(read_pod(theirs, configured)) == compose_request(theirs, "tensor-fusion.ai")
    acme = pod({"resources": {"limits": {"acme.com/mem": 10}}})
    assert replace(read_pod(acme, BOTH), claim=read_hami(acme, ACME).claim) == read_hami(acme, ACME)


def test_without_defaults_a_card_is_whole_and_with_them_a_part():
    assert read_pod(pod(limits(gpu=1))).requirement.part.vram_ppm == 1_000_000
    shared = PodSettings(families=(nvidia(memory={"default_mib": 4000}),))
    assert read_pod(pod(limits(gpu=1)), shared).requirement.part == Part(vram_bytes=4000 * MIB)
    assert plainly(read_pod(pod(AMD), shared)) == compose_request(pod(AMD))


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (pod({}, annotations=OURS | THEIRS), "metadata.annotations.tensor-fusion.ai/vram-request"),
        (pod(limits(gpu=1, mem=1), annotations=OURS), f"spec.containers[0].resources.limits.{MEMORY}"),
        (pod(limits(cores=1), annotations=THEIRS), f"spec.containers[0].resources.limits.{CORES}"),
        (pod({}, annotations=OURS | {"nvidia.com/use-gpuuuid": "a"}), "metadata.annotations.nvidia.com/use-gpuuuid"),
        (
            pod(limits(mem=1), annotations={"tensor-fusion.ai/gpupool": "p"}),
            f"spec.containers[0].resources.limits.{MEMORY}",
        ),
    ],
)
def test_two_dialects_are_refused(document, field):
    with pytest.raises(InvalidRequest, match="keep one of the two") as caught:
        read_pod(document, BOTH)
    assert caught.value.field == field


def settings_of(number):
    return PodSettings(families=(nvidia(cores={"default": number}),))


def test_two_readers_whose_settings_are_equal_and_not_the_same_read_every_pod_the_same_in_any_order():
    one, other = PodReader(settings_of(0)), PodReader(settings_of(0))
    asking = pod(limits(gpu=1, mem=1000, cores=10), annotations={"nvidia.com/use-gpuuuid": "GPU-2"})
    for reader in (one, other, PodReader(settings_of(0)), one):
        asked = reader(asking)
        assert asked.dialect is Dialect.HAMI
        assert asked.requirement.part == Part(compute_ppm=100_000, vram_bytes=1000 * MIB)
        assert asked.requirement.cards.uuids == ("GPU-2",)


def test_requests_to_a_device_plugin_are_read_with_the_pod():
    asked = read_pod(pod(limits(gpu=1, mem=1000), {}))
    assert (asked.devices.family, [ask.count for ask in asked.devices.containers]) == (NVIDIA, [1, 0])
    assert [ask.count for ask in read_pod(pod(limits(gpu=2), annotations=OURS)).devices.containers] == [2]
    assert read_pod(pod({}, annotations=OURS)).devices is None
    assert read_pod(pod(INTEL)).devices is None


@pytest.mark.parametrize("value", ["", "  ", "\n"])
@pytest.mark.parametrize("key", sorted(PodSettings().annotations))
def test_an_empty_value_is_refused_by_its_key_in_every_dialect(key: str, value: str) -> None:
    domain, _, _ = key.partition("/")
    own = {f"{domain}/gpu-count": "1"} if domain in ("ullage.io", "tensor-fusion.ai") else {}
    containers = [{"name": "c", "resources": {"limits": {} if own else {"nvidia.com/gpu": "1"}}}]
    asking = {"metadata": {"uid": "u", "annotations": own | {key: value}}, "spec": {"containers": containers}}
    with pytest.raises(InvalidAnnotation, match="it is empty; write a value, or leave it out") as refused:
        read_pod(asking)
    assert refused.value.field == key
    bare = {"metadata": {"annotations": {"ullage.io/qos": value}}, "spec": {"containers": [{"name": "c"}]}}
    assert read_pod(bare) is None, "it asks for no cards"


VOLCANO = {"volcano.sh/numa-topology-policy": "best-effort"}


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ({"nvidia.com/numa-bind": "true"}, ["nvidia.com/numa-bind: 'true'", "volcano.sh/numa-topology-policy is"]),
        (
            {"tensor-fusion.ai/gpu-count": "2", "tensor-fusion.ai/require-gpu-topology": "true"},
            ["volcano.sh/numa-topology-policy: 'best-effort'", "tensor-fusion.ai/require-gpu-topology"],
        ),
        (
            {"volcano.sh/numa-topology-policy": "none", "ullage.io/numa-pairs": "gpu~cpu=required"},
            ["ullage.io/numa-pairs", "volcano.sh/numa-topology-policy is 'none'"],
        ),
    ],
)
def test_a_contradiction_names_the_keys_that_the_pod_has(words: dict[str, str], names: list[str]) -> None:
    limits = {} if "tensor-fusion.ai/gpu-count" in words else {"nvidia.com/gpu": "2"}
    containers = [{"name": "c", "resources": {"limits": limits}}]
    with pytest.raises(InvalidAnnotation) as refused:
        read_pod({"metadata": {"uid": "u", "annotations": VOLCANO | words}, "spec": {"containers": containers}})
    assert all(name in refused.value.message for name in names)
    assert "numa-policy" not in refused.value.message
    assert "None" not in refused.value.message
