"""Expressions that select devices: their facts, their functions, and their errors."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("cel_expr_python", reason="cel-expr-python is in the lock, and not installed here")

from ullage.model.slice_device import Attribute, Capacity, SliceDevice, ValueKind
from ullage.wire.dra import selector
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
def test_expressions_that_hold(expression):
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
def test_an_expression_without_a_result_fails(expression):
    with pytest.raises(SelectorFailed) as error:
        selects(expression, DEVICE)
    assert len(error.value.message) < 1000


_TEN = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
ENDLESS = f"{_TEN}.all(a, {_TEN}.all(b, {_TEN}.all(c, {_TEN}.all(d, a + b + c + d < 100))))"
"""More steps than an expression may take; an API server admits it."""


class Asked:
    """A program that counts how often it is asked."""

    def __init__(self, program: Any) -> None:
        self.program, self.times = program, 0

    def eval(self, data: dict[str, Any]) -> Any:
        self.times += 1
        return self.program.eval(data=data)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    """The programs of all expressions that are compiled in this test, as one."""
    found, environment = Asked(None), selector._environment()

    class Environment:
        def compile(self, expression: str) -> Asked:
            found.program = environment.compile(expression)
            return found

    selector._compiled.cache_clear()
    monkeypatch.setattr(selector, "_environment", Environment)
    yield found
    selector._compiled.cache_clear()


def test_an_expression_with_too_many_steps_fails_and_is_not_evaluated_again(asked: Asked) -> None:
    for name in ("gpu-0", "gpu-1", "gpu-2"):
        with pytest.raises(SelectorFailed, match="budget exceeded"):
            selects(ENDLESS, replace(DEVICE, name=name))
    assert asked.times == 1


def test_an_expression_above_its_time_is_not_evaluated_again(monkeypatch: pytest.MonkeyPatch, asked: Asked) -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.25
        return now

    monkeypatch.setattr(selector, "_clock", clock)
    assert [selects("true", DEVICE) for _ in range(5)] == [True] * 5
    for _ in range(3):
        with pytest.raises(SelectorFailed, match="takes too long"):
            selects("true", DEVICE)
    assert asked.times == 5


def test_a_slow_expression_within_its_budget_is_evaluated_for_all_devices(
    monkeypatch: pytest.MonkeyPatch, asked: Asked
) -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += selector._EACH_S
        return now

    monkeypatch.setattr(selector, "_clock", clock)
    assert all(selects("true", DEVICE) for _ in range(3000))
    assert asked.times == 3000
