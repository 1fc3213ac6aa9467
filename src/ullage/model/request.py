"""What one executor asks for, and its text form `cpu=4,mem=16g,gpu=2`.

This is the only parser of that text: command line, configuration, SDK and every front call it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ullage.model.error import InvalidRequest, invalid
from ullage.model.quantity import MAX_INT32, MAX_INT64, format_bytes, parse_bytes, parse_count
from ullage.model.resources import MILLI, Resources, show_milli

_KEYS = {"cpu": "cpu", "mem": "memory", "memory": "memory", "gpu": "gpu"}
_FORM = "write a comma list such as cpu=2,mem=4g,gpu=1"


def parse_amounts(text: str) -> dict[str, int]:
    """What a text names: cpu in thousandths of a core, memory in bytes, gpu in cards; nothing else.

    Raises:
        InvalidRequest: with the offending entry named.

    """
    if not isinstance(text, str) or not text.strip():
        raise invalid("resreq", text, _FORM)
    entries = []
    for entry in text.split(","):
        key, separator, value = (part.strip() for part in entry.partition("="))
        if not separator or not key or not value or "=" in value:
            raise invalid("resreq", entry, _FORM)
        entries.append((key, value))
    return _amounts(entries)


def _amounts(entries: list[tuple[str, str]]) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for key, value in entries:
        name, shown = _KEYS.get(key.lower()), f"{key}={value}"
        if name is None:
            raise invalid("resreq", shown, "the keys are cpu, mem (or memory) and gpu")
        if name in amounts:
            raise invalid("resreq", shown, f"{name} is given twice; keep one")
        try:
            amounts[name] = _amount(name, value)
        except InvalidRequest as error:
            raise InvalidRequest(f"resreq {shown!r}: {error.message}", field=error.field) from None
    return amounts


def _amount(name: str, text: str) -> int:
    if name == "memory":
        return parse_bytes(text)
    return parse_count(text, "cpu", MAX_INT64) * MILLI if name == "cpu" else parse_count(text, "gpu", MAX_INT32)


@dataclass(frozen=True, slots=True)
class ResourceRequirement:
    """The request of one executor: cores, bytes of memory, whole cards on one node.

    Raises:
        InvalidRequest: a field is negative, too large or not an integer, or nothing is asked.

    """

    cpu_milli: int = 0
    memory_bytes: int = 0
    gpu_count: int = 0

    def __post_init__(self) -> None:
        for field, value, maximum in (
            ("cpu", self.cpu_milli, MAX_INT64 * MILLI),
            ("memory", self.memory_bytes, MAX_INT64),
            ("gpu", self.gpu_count, MAX_INT32),
        ):
            if not isinstance(value, int) or isinstance(value, bool):
                raise invalid(field, value, "an integer is needed")
            if value < 0:
                raise invalid(field, value, "an amount cannot be negative; omit the key to ask for none")
            if value > maximum:
                raise invalid(field, value, f"at most {maximum} can be asked")
        if not (self.cpu_milli or self.memory_bytes or self.gpu_count):
            raise invalid("resreq", "cpu=0,mem=0,gpu=0", "ask for at least one of cpu, mem, gpu")

    @classmethod
    def of(cls, cpu: int = 0, memory: int | str = 0, gpu: int = 0) -> ResourceRequirement:
        """A request of whole cores, bytes (or a size text) and whole cards."""
        for field, value in (("cpu", cpu), ("gpu", gpu)):
            if not isinstance(value, int) or isinstance(value, bool):
                raise invalid(field, value, "a whole number is needed")
        if cpu > MAX_INT64:
            raise invalid("cpu", cpu, f"at most {MAX_INT64} can be asked")
        return cls(cpu * MILLI, parse_bytes(memory) if isinstance(memory, str) else memory, gpu)

    @classmethod
    def from_string(cls, text: str) -> ResourceRequirement:
        """Parse `cpu=4,mem=16g,gpu=2`: keys of any case and order, blanks around entries trimmed.

        Raises:
            InvalidRequest: with the offending entry named.

        """
        amounts = parse_amounts(text)
        return cls(amounts.get("cpu", 0), amounts.get("memory", 0), amounts.get("gpu", 0))

    @classmethod
    def from_value(cls, value: object) -> ResourceRequirement:
        """Accept a requirement, its text, or a mapping with cpu, mem or memory, gpu.

        Raises:
            InvalidRequest: for any other value.

        """
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            return cls.from_string(value)
        if isinstance(value, Mapping):
            amounts = _amounts([(str(key), str(amount)) for key, amount in value.items()])
            return cls(amounts.get("cpu", 0), amounts.get("memory", 0), amounts.get("gpu", 0))
        raise invalid("resreq", value, _FORM)

    @property
    def cpu(self) -> int:
        """Whole cores asked."""
        return self.cpu_milli // MILLI

    @property
    def memory(self) -> int:
        """Bytes of memory asked."""
        return self.memory_bytes

    @property
    def gpu(self) -> int:
        """Whole cards asked."""
        return self.gpu_count

    @property
    def resources(self) -> Resources:
        """The amounts this request charges to its node, queue and session."""
        return Resources(self.cpu_milli, self.memory_bytes, self.gpu_count * MILLI)

    def __str__(self) -> str:
        return f"cpu={show_milli(self.cpu_milli)},mem={format_bytes(self.memory_bytes)},gpu={self.gpu_count}"


DEFAULT_REQUIREMENT = ResourceRequirement.of(cpu=1, memory="1g")
"""What a session asks for when neither it nor the configuration says anything."""
