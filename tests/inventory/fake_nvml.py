"""A stand-in for the pynvml module at its edge: the adapter's own code runs against it."""

# ruff: noqa: N802 (the names are those of the NVML API)

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

GIB = 2**30
SWITCH = "00000000:FA:00.0"
"""Bus id of an NVSwitch."""


class NVMLError(Exception):
    def __init__(self, value):
        super().__init__(f"error {value}")
        self.value = value


@dataclass
class FakeSlice:
    uuid: str
    profile: str
    memory: int
    compute_slices: int
    instance: int
    compute_instance: int = 0
    used: int = 0
    failing: dict[str, int] = field(default_factory=dict)

    @property
    def model(self):
        return f"NVIDIA H100 MIG {self.profile}"


@dataclass
class FakeCard:
    uuid: str
    model: str = "NVIDIA H100"
    memory: int = 80 * GIB
    bus_id: str = "00000000:3B:00.0"
    used: int = 0
    busy: int = 0
    """How many percent of the time it works."""
    failing: dict[str, int] = field(default_factory=dict)
    """Name of a function -> the NVML error it raises for this card."""
    nvlinks: list[str | None] = field(default_factory=list)
    """The end of each link: the bus id of a card, SWITCH, or None for an inactive link."""
    near: int | None = None
    """Bits of the NUMA nodes whose memory is near."""
    slices: list[FakeSlice | None] | None = None
    """The slices of a card in MIG mode, None in place of one that is not there."""


class FakeNvml:
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_ERROR_FUNCTION_NOT_FOUND = 13
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_ERROR_UNKNOWN = 999
    NVML_ERROR_INVALID_ARGUMENT = 2
    NVML_AFFINITY_SCOPE_NODE = 0
    NVML_NVLINK_MAX_LINKS = 20
    NVML_NVLINK_DEVICE_TYPE_SWITCH = 2
    NVMLError = NVMLError

    def __init__(self, *cards):
        self.installed = list(cards)
        self.failing = {}
        self.started = 0
        self.starts = 0

    def nvmlInit(self):
        self._fail("nvmlInit", self)
        self.started += 1
        self.starts += 1

    def nvmlShutdown(self):
        self._fail("nvmlShutdown", self)
        self.started -= 1

    def nvmlDeviceGetCount(self):
        self._fail("nvmlDeviceGetCount", self)
        return len(self.installed)

    def nvmlDeviceGetHandleByIndex(self, position):
        card = self.installed[position]
        self._fail("nvmlDeviceGetHandleByIndex", card)
        return card

    def nvmlDeviceGetUUID(self, card):
        self._fail("nvmlDeviceGetUUID", card)
        return card.uuid

    def nvmlDeviceGetName(self, card):
        self._fail("nvmlDeviceGetName", card)
        return card.model

    def nvmlDeviceGetMemoryInfo(self, card):
        self._fail("nvmlDeviceGetMemoryInfo", card)
        return SimpleNamespace(total=card.memory, used=card.used)

    def nvmlDeviceGetUtilizationRates(self, card):
        self._fail("nvmlDeviceGetUtilizationRates", card)
        return SimpleNamespace(gpu=card.busy, memory=0)

    def nvmlDeviceGetPciInfo(self, card):
        self._fail("nvmlDeviceGetPciInfo", card)
        return SimpleNamespace(busId=card.bus_id)

    def nvmlDeviceGetMigMode(self, card):
        self._fail("nvmlDeviceGetMigMode", card)
        return [int(card.slices is not None)] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, card):
        self._fail("nvmlDeviceGetMaxMigDeviceCount", card)
        return len(card.slices)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card, position):
        if card.slices[position] is None:
            raise NVMLError(6)
        return card.slices[position]

    def nvmlDeviceGetGpuInstanceId(self, part):
        self._fail("nvmlDeviceGetGpuInstanceId", part)
        return part.instance

    def nvmlDeviceGetComputeInstanceId(self, part):
        self._fail("nvmlDeviceGetComputeInstanceId", part)
        return part.compute_instance

    def nvmlDeviceGetAttributes_v2(self, part):
        self._fail("nvmlDeviceGetAttributes_v2", part)
        return SimpleNamespace(computeInstanceSliceCount=part.compute_slices)

    def nvmlDeviceGetMemoryAffinity(self, card, words, scope):
        self._fail("nvmlDeviceGetMemoryAffinity", card)
        if card.near is None:
            raise NVMLError(self.NVML_ERROR_NOT_SUPPORTED)
        assert (words, scope) == (1, self.NVML_AFFINITY_SCOPE_NODE)
        return [card.near]

    def nvmlDeviceGetNvLinkState(self, card, link):
        self._fail("nvmlDeviceGetNvLinkState", card)
        if link >= len(card.nvlinks):
            raise NVMLError(self.NVML_ERROR_INVALID_ARGUMENT)
        return int(card.nvlinks[link] is not None)

    def nvmlDeviceGetNvLinkRemotePciInfo(self, card, link):
        self._fail("nvmlDeviceGetNvLinkRemotePciInfo", card)
        return SimpleNamespace(busId=card.nvlinks[link])

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, card, link):
        self._fail("nvmlDeviceGetNvLinkRemoteDeviceType", card)
        return self.NVML_NVLINK_DEVICE_TYPE_SWITCH if card.nvlinks[link] == SWITCH else 0

    def _fail(self, function, owner):
        assert self.started > 0 or function == "nvmlInit", "NVML was used while it was not started"
        if function in owner.failing:
            raise NVMLError(owner.failing[function])
