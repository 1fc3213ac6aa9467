"""HAMi's device configuration changes the families, and what it says in vain is named."""

import pytest
import yaml

from ullage.model.error import InvalidRequest
from ullage.model.part import Part
from ullage.wire.dialect import PodReader, PodSettings
from ullage.wire.vendors.device_config import read_device_config
from ullage.wire.vendors.shipped import FAMILIES

MIB = 2**20

CHART = """
nvidia:
  resourceCountName: acme.com/vgpu
  resourceMemoryName: acme.com/mem
  resourceCoreName: nvidia.com/gpucores
  overwriteEnv: false
  defaultMemory: 4000
  defaultCores: 0
  defaultGPUNum: 2
  memoryFactor: 10
  deviceSplitCount: 10
  runtimeClassName: nvidia
metax:
  resourceCountName: metax-tech.com/gpu
  resourceVCountName: metax-tech.com/sgpu2
  sgpuTopologyAware: "false"
hygon:
  resourceCountName: hygon.com/dcunum
  memoryFactor: 2
iluvatars:
- chipName: BI-V200
  commonWord: BI-V200
  resourceCountName: iluvatar.ai/BI-V200-vgpu
  resourceMemoryName: iluvatar.ai/BI-V200.memory
vnpus:
  hamiVnpuCore: false
  configs:
  - chipName: 910B3
    commonWord: Ascend910B3
    resourceName: huawei.com/Ascend910B3
    memoryAllocatable: 60000
    memoryCapacity: 65536
    aiCore: 20
    templates:
    - {name: half, memory: 30000, aiCore: 10, aiCPU: 3}
    - {name: whole-but-little, memory: 50000, aiCore: 15}
  - chipName: Ascend910
    commonWord: Ascend910C
    superPod: false
graphcore:
  resourceCountName: graphcore.ai/ipu
"""


@pytest.fixture(name="config")
def of_the_chart():
    return read_device_config(yaml.safe_load(CHART), FAMILIES)


def family(config, name):
    return next(each for each in config.families if each.name == name)


def asked(config, limits):
    pod = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    return PodReader(PodSettings(families=config.families))(pod)


def test_names_factors_and_defaults_are_those_of_the_configuration(config):
    found = asked(config, {"acme.com/mem": "100"})
    assert (found.requirement.gpu_count, found.requirement.part) == (2, Part(vram_bytes=1000 * MIB))
    assert asked(config, {"acme.com/vgpu": "1"}).requirement.part == Part(vram_bytes=4000 * MIB)
    assert asked(config, {"nvidia.com/gpumem": "100"}) is None
    assert asked(config, {"hygon.com/dcunum": 1, "hygon.com/dcumem": 50, "hygon.com/dcucores": 5}).requirement.part == (
        Part(vram_bytes=100 * MIB, compute_ppm=50_000)
    )
    assert family(config, "NVIDIA").webhook.runtime_class == "nvidia"
    assert family(config, "MetaX-sGPU").resources.count == "metax-tech.com/sgpu2"


def test_slices_are_those_of_the_configuration(config):
    limits = {"huawei.com/Ascend910B3": 1, "huawei.com/Ascend910B3-memory": 30001}
    (found,) = asked(config, limits).devices.containers
    assert (found.vram_bytes, found.template) == (50000 * MIB, "whole-but-little")
    assert family(config, "Ascend910C").count.step == 1
    assert family(config, "Ascend910A") == next(each for each in FAMILIES if each.name == "Ascend910A")


def test_a_chip_that_no_file_has_is_made_from_the_defaults_of_its_vendor(config):
    found = family(config, "BI-V200")
    assert found.register.annotation == "hami.io/node-BI-V200-register"
    assert found.resources.cores == "iluvatar.ai/BI-V200.vCore"
    limits = {"iluvatar.ai/BI-V200-vgpu": 1, "iluvatar.ai/BI-V200.memory": 4}
    assert asked(config, limits).requirement.part == Part(vram_bytes=1024 * MIB)


def test_what_is_not_followed_is_named(config):
    plugin = "its device plugin follows it, and the register of a node has the result"
    assert set(config.ignored) == {
        f"nvidia.deviceSplitCount: {plugin}",
        "metax.sgpuTopologyAware: it is not followed",
        f"iluvatars[0].chipName: {plugin}",
        "vnpus.hamiVnpuCore: it is not followed",
        f"vnpus.configs[0].chipName: {plugin}",
        f"vnpus.configs[0].aiCore: {plugin}",
        f"vnpus.configs[1].chipName: {plugin}",
        "graphcore: there is no such vendor",
    }


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[]", r"device-config.yaml: \[\]"),
        ("nvidia: 3", "device-config.yaml: nvidia: 3"),
        ("nvidia: {memoryFactor: x}", "device-config.yaml: nvidia.memoryFactor: 'x' .* a whole number"),
        ("nvidia: {resourceCountName: 5}", "device-config.yaml: nvidia.resourceCountName: 5 .* a text"),
        ("iluvatars: {}", r"device-config.yaml: iluvatars: \{\} .* a list"),
        ("iluvatars: [{chipName: x}]", r"device-config.yaml: iluvatars\[0\].commonWord: None"),
        ("vnpus: {configs: [3]}", r"device-config.yaml: vnpus.configs\[0\]: 3"),
        (
            "vnpus: {configs: [{commonWord: Ascend910C, superPod: 1}]}",
            r"device-config.yaml: vnpus.configs\[0\].superPod: 1 .* true or false",
        ),
        (
            "vnpus: {configs: [{commonWord: Ascend910A, templates: [{size: 1}]}]}",
            r"device-config.yaml: vnpus.configs\[0\].templates\[0\].size: 1 .* name, memory",
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_key(text, where):
    with pytest.raises(InvalidRequest, match=where):
        read_device_config(yaml.safe_load(text), FAMILIES)


def test_what_the_webhook_writes_of_the_configuration_is_followed_and_checked():
    config = read_device_config({"nvidia": {"overwriteEnv": True, "gpuCorePolicy": "force"}}, FAMILIES)
    assert config.ignored == ()
    rule = family(config, "NVIDIA").webhook
    assert (rule.hides_cards, rule.core_policy) == (True, "force")
    with pytest.raises(InvalidRequest, match="gpuCorePolicy"):
        read_device_config({"nvidia": {"gpuCorePolicy": "sometimes"}}, FAMILIES)
    with pytest.raises(InvalidRequest, match="overwriteEnv"):
        read_device_config({"nvidia": {"overwriteEnv": "perhaps"}}, FAMILIES)
