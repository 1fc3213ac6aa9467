"""Expressions that select devices: what they see, what functions they have, and what has no answer."""

import pytest

pytest.importorskip("cel_expr_python", reason="cel-expr-python is in the lock, and not installed here")

from ullage.model.slice_device import Attribute, Capacity, SliceDevice, ValueKind
from ullage.wire.dra.selector import MAX_LENGTH, SelectorFailed, selects

OWN = "gpu.nvidia.com"
DEVICE = SliceDevice(
    OWN,
    "n1",
    "gpu-0",
    "n1",
    attributes={
        f"{OWN}/type": Attribute(ValueKind.STRING, ("gpu",)),
        f"{OWN}/productName": Attribute(ValueKind.STRING, ("NVIDIA A100-SXM4-80GB",)),
        f"{OWN}/uuid": Attribute(ValueKind.STRING, ("GPU-1",)),
        f"{OWN}/index": Attribute(ValueKind.INT, (0,)),
        f"{OWN}/mig": Attribute(ValueKind.BOOL, (False,)),
        f"{OWN}/driverVersion": Attribute(ValueKind.VERSION, ("560.35.3+build",)),
        "resource.kubernetes.io/numaNode": Attribute(ValueKind.INT, (1, 0), True),
    },
    capacity={f"{OWN}/memory": Capacity(80 * 2**30 * 1000)},
)


@pytest.mark.parametrize(
    "expression",
    [
        "true",
        f"device.driver == '{OWN}' && device.attributes['{OWN}'].type == 'gpu'",
        f"device.attributes['{OWN}'].productName.lowerAscii().matches('a100')",
        f"device.capacity['{OWN}'].memory.compareTo(quantity('40Gi')) >= 0",
        f"device.capacity['{OWN}'].memory == quantity('81920Mi')",
        f"device.capacity['{OWN}'].memory.isGreaterThan(quantity('79Gi'))",
        f"device.capacity['{OWN}'].memory.sub(quantity('80Gi')).sign() == 0",
        f"device.capacity['{OWN}'].memory.isInteger() && device.capacity['{OWN}'].memory.asInteger() > 0",
        "quantity('1500m').add(quantity('0.5')) == quantity('2') && !isQuantity('4 Gi') && isQuantity('-1.5k')",
        "quantity('1500m').add(1).asApproximateFloat() == 2.5",
        f"device.attributes['{OWN}'].driverVersion.compareTo(semver('560.35.3')) == 0",
        f"device.attributes['{OWN}'].driverVersion.isGreaterThan(semver('560.35.3-rc.1'))",
        f"device.attributes['{OWN}'].driverVersion.isLessThan(semver('v561', true))",
        "semver('1.2.3-alpha.2').isLessThan(semver('1.2.3-alpha.10')) && semver('1.2.3').minor() == 2",
        "isSemver('1.2.3') && !isSemver('v1.2') && isSemver('v1.2', true)",
        f"cel.bind(own, device.attributes['{OWN}'], own.uuid.startsWith('GPU-') && !own.mig)",
        f"device.attributes['{OWN}'].?brand.orValue('none') == 'none'",
        "!has(device.attributes['other.example.com'].model)",
        "!('other.example.com' in device.attributes) || device.attributes.size() > 0",
        "device.attributes['other.example.com'].?model.orValue('x') == 'x'",
        f"device.attributes['{OWN}'].index in [0, 2]",
        "device.attributes['resource.kubernetes.io'].numaNode.exists(zone, zone == 1)",
        "device.attributes['resource.kubernetes.io'].numaNode.includes(0)",
        f"device.attributes['{OWN}'].type.includes('gpu')",
        "!device.allowMultipleAllocations",
        f"device.attributes['{OWN}'].absent == 1 || true",
    ],
)
def test_what_holds(expression):
    assert selects(expression, DEVICE) is True
    assert selects(f"!({expression})", DEVICE) is False


@pytest.mark.parametrize(
    "expression",
    [
        "device.attributes['other.example.com'].model == 'x'",
        f"device.attributes['{OWN}'].absent == 'x'",
        "'text'",
        "1 +",
        "unknown(1)",
        "quantity('many') == quantity('1')",
        f"device.attributes['{OWN}'].type.compareTo(quantity('1')) > 0",
        "true || " * MAX_LENGTH + "true",
    ],
)
def test_what_has_no_answer_says_so(expression):
    with pytest.raises(SelectorFailed) as error:
        selects(expression, DEVICE)
    assert len(error.value.message) < 1000
