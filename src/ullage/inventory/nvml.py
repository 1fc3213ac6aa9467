"""NVIDIA cards through NVML, the library under nvidia-smi.

Source: NVML API Reference. Every reading starts and stops NVML anew, which it counts and allows any
number of times; so a driver that comes or goes between two readings is noticed.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from ullage.inventory.zone import kernel_bus_id, read_zone
from ullage.model.error import Unavailable
from ullage.model.gpu import Gpu
from ullage.model.topology import zones_of

VENDOR = "NVIDIA"

_NO_ANSWER = ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_NO_PERMISSION", "NVML_ERROR_FUNCTION_NOT_FOUND")
"""Errors that say a fact cannot be had; any other says that the card does not work."""


class CardsUnreadable(Unavailable):
    """Nothing can be said about the cards; the message is the reason."""

    code = "cards-unreadable"


class CardReader(Protocol):
    """Tells which cards the machine has."""

    def cards(self) -> tuple[Gpu, ...]:
        """All cards this process may use, in PCI order, `index` counting from 0 without gaps.

        Raises:
            CardsUnreadable: it cannot be known; no cards at all is an empty tuple instead.

        """
        ...


class NvmlCards:
    """The cards NVML lists. One instance serves one caller at a time and holds no lock.

    `library` is the pynvml module (nvidia-ml-py), imported at the first reading when not given.
    """

    def __init__(self, library: Any = None, root: Path = Path("/")) -> None:
        self._library = library
        self._root = root
        self._last: tuple[Gpu, ...] = ()

    def cards(self) -> tuple[Gpu, ...]:
        """All cards this process may use; one that fails is not healthy and keeps its last known facts.

        When NVML stops answering after it has answered, all cards are reported so: running programs
        may survive that, as they do when a driver is upgraded under them, but new ones do not start.

        Raises:
            CardsUnreadable: no nvidia-ml-py, no driver, or NVML does not start or cannot count.

        """
        try:
            self._last = self._read()
        except CardsUnreadable:
            if not self._last:
                raise
            self._last = tuple(replace(gpu, healthy=False) for gpu in self._last)
        return self._last

    def _read(self) -> tuple[Gpu, ...]:
        library = self._library = self._library or _load()
        try:
            library.nvmlInit()
        except library.NVMLError as error:
            raise CardsUnreadable(f"NVML does not start: {error}") from error
        try:
            readings = [_Card(library, handle) for handle in _handles(library)]
            return self._identify([card.read(self._root, index) for index, card in enumerate(readings)])
        except library.NVMLError as error:
            raise CardsUnreadable(f"NVML cannot count the cards: {error}") from error
        finally:
            with suppress(library.NVMLError):  # whatever was read stays true
                library.nvmlShutdown()

    def _identify(self, readings: list[Gpu | None]) -> tuple[Gpu, ...]:
        """Readings with a card that does not even say its uuid named as it was at the last reading."""
        answered = {gpu.uuid for gpu in readings if gpu is not None}
        remembered = {gpu.index: gpu for gpu in self._last if gpu.uuid not in answered}
        return tuple(
            gpu or replace(remembered.get(index, Gpu(f"unreadable-{index}", index, vendor=VENDOR)), healthy=False)
            for index, gpu in enumerate(readings)
        )


class _Card:
    """One card under question; no `handle` means that NVML could not reach it."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library = library
        self._handle = handle
        self._works = True

    def read(self, root: Path, index: int) -> Gpu | None:
        """The card's facts, or None if it does not say who it is."""
        uuid = self._ask("nvmlDeviceGetUUID") if self._handle is not None else None
        if uuid is None:
            return None
        model = self._ask("nvmlDeviceGetName")
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        pci = self._ask("nvmlDeviceGetPciInfo")
        bus_id = None if pci is None else kernel_bus_id(pci.busId)
        return Gpu(
            uuid,
            index,
            model=model,
            vendor=VENDOR,
            vram_bytes=None if memory is None else memory.total,
            zones=zones_of(None if bus_id is None else read_zone(root, bus_id)),
            bus_id=bus_id,
            healthy=self._works,
        )

    def _ask(self, question: str) -> Any:
        """The answer, or None; a failure that is not merely a missing answer marks the card as not working."""
        try:
            return getattr(self._library, question)(self._handle)
        except self._library.NVMLError as error:
            if error.value not in {getattr(self._library, name) for name in _NO_ANSWER}:
                self._works = False
            return None


def _load() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise CardsUnreadable("nvidia-ml-py is not installed; it comes with ullage[gpu]") from error


def _handles(library: Any) -> list[Any]:
    """Handles in PCI order, None for a card that cannot be reached.

    NVML counts cards that this process has no permission for, such as those a container was not
    given. CUDA does not show them either, so they take no index.
    """
    handles = []
    for position in range(library.nvmlDeviceGetCount()):
        try:
            handles.append(library.nvmlDeviceGetHandleByIndex(position))
        except library.NVMLError as error:
            if error.value != library.NVML_ERROR_NO_PERMISSION:
                handles.append(None)
    return handles
