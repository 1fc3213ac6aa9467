"""NVIDIA cards through NVML, the library under nvidia-smi.

Source: NVML API Reference. Every reading starts and stops NVML, which NVML permits any number of times. So a driver
that is loaded or unloaded between two readings is noticed.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Protocol

from ullage.inventory.mig import Slices, read_slices
from ullage.inventory.nvlink import NvLinkEnd, read_ends
from ullage.inventory.pci import kernel_address
from ullage.model.card_load import CardLoad
from ullage.model.error import InvalidRequest, Unavailable
from ullage.model.gpu import Gpu
from ullage.model.topology import MAX_ZONES

VENDOR = "NVIDIA"

_NO_ANSWER = ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_NO_PERMISSION", "NVML_ERROR_FUNCTION_NOT_FOUND")
"""Errors of a missing fact; any other error means that the card does not work."""


class CardsUnreadable(Unavailable):
    """The cards cannot be determined; the message is the reason."""

    code = "cards-unreadable"


class CardReader(Protocol):
    """Reads the cards of the machine, and the links between them."""

    def cards(self) -> tuple[Gpu, ...]:
        """Return all cards this process may use, in PCI order, `index` counting from 0 without gaps.

        Raises:
            CardsUnreadable: they cannot be determined; a machine without cards has an empty tuple.

        """
        ...

    def nvlinks(self) -> tuple[NvLinkEnd, ...]:
        """Return the ends of all active NVLinks of these cards.

        Raises:
            CardsUnreadable: they cannot be determined.

        """
        ...


class NvmlCards:
    """The cards that NVML lists. One instance serves one caller at a time and holds no lock.

    `library` is the pynvml module (nvidia-ml-py), imported at the first reading when not given.
    """

    def __init__(self, library: Any = None) -> None:
        self._library = library
        self._last: tuple[Gpu, ...] = ()

    def cards(self) -> tuple[Gpu, ...]:
        """Return all cards this process may use. A failed card is unhealthy and has its last known facts.

        If NVML stops answering, all cards are unhealthy: running programs may survive, as during a driver upgrade, but
        new ones do not start.

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

    def loads(self) -> tuple[CardLoad, ...]:
        """Return the load of each card that reports its uuid.

        Raises:
            CardsUnreadable: as for `cards`.

        """
        with self._started() as library:
            found = [_Card(library, handle).load() for handle in _handles(library)]
            return tuple(load for load in found if load is not None)

    def nvlinks(self) -> tuple[NvLinkEnd, ...]:
        """Return the ends of all active NVLinks. A failed card has none.

        Raises:
            CardsUnreadable: as for `cards`.

        """
        with self._started() as library:
            named = [(handle, _Card(library, handle).uuid) for handle in _handles(library) if handle is not None]
            return tuple(end for handle, uuid in named if uuid for end in read_ends(library, handle, uuid))

    def _read(self) -> tuple[Gpu, ...]:
        with self._started() as library:
            readings = [_Card(library, handle) for handle in _handles(library)]
            return self._identify([card.read(index) for index, card in enumerate(readings)])

    @contextmanager
    def _started(self) -> Iterator[Any]:
        """Yield the library between its start and its stop."""
        library = self._library = self._library or _load()
        try:
            library.nvmlInit()
        except library.NVMLError as error:
            raise CardsUnreadable(f"NVML does not start: {error}") from error
        try:
            yield library
        except library.NVMLError as error:
            raise CardsUnreadable(f"NVML cannot count the cards: {error}") from error
        finally:
            with suppress(library.NVMLError):  # the values read before remain valid
                library.nvmlShutdown()

    def _identify(self, readings: list[Gpu | None]) -> tuple[Gpu, ...]:
        """Return the readings; a card that does not report its uuid has that of the last reading."""
        answered = {gpu.uuid for gpu in readings if gpu is not None}
        remembered = {gpu.index: gpu for gpu in self._last if gpu.uuid not in answered}
        return tuple(
            gpu or replace(remembered.get(index, Gpu(f"unreadable-{index}", index, vendor=VENDOR)), healthy=False)
            for index, gpu in enumerate(readings)
        )


class _Card:
    """One card during a reading. `handle` is None if NVML cannot reach the card."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library = library
        self._handle = handle
        self._works = True

    @property
    def uuid(self) -> str | None:
        """Return the uuid, or None if the card does not report it."""
        uuid: str | None = self._ask("nvmlDeviceGetUUID") if self._handle is not None else None
        return uuid

    def read(self, index: int) -> Gpu | None:
        """Return the card's facts, or None if it does not report its uuid. `zones` are from NVML alone."""
        uuid = self.uuid
        if uuid is None:
            return None
        model = self._ask("nvmlDeviceGetName")
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        pci = self._ask("nvmlDeviceGetPciInfo")
        slices = self._slices(model)
        return Gpu(
            uuid,
            index,
            model=model,
            vendor=VENDOR,
            vram_bytes=None if memory is None else memory.total,
            zones=self._zones(),
            bus_id=None if pci is None else kernel_address(pci.busId),
            healthy=self._works,
            partitions=None if slices is None else slices.partitions,
            slice_uuids=() if slices is None else slices.uuids,
        )

    def load(self) -> CardLoad | None:
        """Return how busy the card is, or None if it does not report its uuid.

        A card in MIG mode does not say how much it works.
        """
        uuid = self.uuid
        if uuid is None:
            return None
        rates, memory = self._ask("nvmlDeviceGetUtilizationRates"), self._ask("nvmlDeviceGetMemoryInfo")
        return CardLoad(
            uuid,
            compute_percent=None if rates is None else int(rates.gpu),
            memory_bytes=None if memory is None else int(memory.used),
        )

    def _slices(self, model: str | None) -> Slices | None:
        """Return the slices of a card in MIG mode; none of one that cannot list them."""
        try:
            return read_slices(self._library, self._handle, model)
        except (self._library.NVMLError, InvalidRequest):
            self._works = False
            return Slices((), ())

    def _zones(self) -> tuple[int, ...]:
        """Return the NUMA nodes with near memory, according to NVML; none without an answer, as drivers differ."""
        ask = getattr(self._library, "nvmlDeviceGetMemoryAffinity", None)
        if ask is None:
            return ()
        try:
            (bits,) = ask(self._handle, 1, self._library.NVML_AFFINITY_SCOPE_NODE)
        except self._library.NVMLError:
            return ()
        return tuple(zone for zone in range(MAX_ZONES) if bits >> zone & 1)

    def _ask(self, question: str) -> Any:
        """Return the answer, or None; a failure other than a missing answer marks the card as not working."""
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
    """Return handles in PCI order, None for a card that cannot be reached.

    NVML counts cards without permission for this process, such as those of other containers. CUDA does not list them,
    so they have no index.
    """
    handles = []
    for position in range(library.nvmlDeviceGetCount()):
        try:
            handles.append(library.nvmlDeviceGetHandleByIndex(position))
        except library.NVMLError as error:
            if error.value != library.NVML_ERROR_NO_PERMISSION:
                handles.append(None)
    return handles
