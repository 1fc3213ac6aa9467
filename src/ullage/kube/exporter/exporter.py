"""The loop on a node: examine the machine, query its kubelet, and write the result into its objects."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from ullage.inventory.machine import MachineSettings, discover
from ullage.inventory.nvml import CardReader
from ullage.inventory.topology_reader import TopologyReader
from ullage.kube.client.api import KubeApi
from ullage.kube.exporter.cards import FoundCards, NodeCards
from ullage.kube.exporter.configz import read_configz
from ullage.kube.exporter.kubelet import KubeletReader, OnError
from ullage.kube.exporter.publisher import Publisher
from ullage.kube.exporter.report import reports_of
from ullage.kube.exporter.settings import ExporterSettings
from ullage.model.error import UllageError, Unavailable
from ullage.model.node import Node
from ullage.model.node_record import NodeRecord, unknown_cards
from ullage.wire.topology.export import record_of

LOOK_S = 10.0
"""Maximum seconds for examining the machine. Later rounds continue to wait for a driver that hangs."""

_LONGEST_PAUSE_S = 60.0


@dataclass(slots=True)
class Count:
    """Counters since the start. `errors` counts messages about failed reads and writes."""

    rounds: int = 0
    writes: int = 0
    errors: int = 0


class Exporter:
    """The exporter of one node. `run` runs until cancelled.

    Whatever cannot be read keeps its last value. `age_s` is the time since everything was read.
    """

    def __init__(
        self,
        api: KubeApi,
        settings: ExporterSettings,
        nvml: CardReader,
        on_error: OnError = lambda _source, _sentence: None,
        *,
        now: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.count = Count()
        self._settings, self._report = settings, on_error
        self._steady, self._pause = steady, pause
        self._cards = NodeCards(nvml, settings.root, settings.node, settings.card_resource)
        self._topology = TopologyReader(settings.root, now, steady)
        configz = partial(read_configz, api, settings.node) if settings.configz else None
        self._kubelet = KubeletReader(settings, self._on_error, configz=configz, steady=steady)
        self._publishers = [
            Publisher(api, settings.node, report, settings.drift_s, now=now, steady=steady)
            for report in reports_of(settings.objects, settings.domain)
        ]
        self._looking: asyncio.Task[tuple[Node, FoundCards]] | None = None
        self._seen: tuple[Node, FoundCards] | None = None
        self._read_at = steady()

    @property
    def age_s(self) -> float:
        """Seconds since everything was read, or since the start."""
        return self._steady() - self._read_at

    async def run(self) -> None:
        """Make rounds forever. While the API does not accept writes, the pause between them grows."""
        failures = 0
        while True:
            failures = 0 if await self.round() else failures + 1
            longest = max(_LONGEST_PAUSE_S, self._settings.period_s)
            await self._pause(min(longest, self._settings.period_s * 2.0 ** min(failures, 10)))

    async def round(self) -> bool:
        """Examine once, and write what changed. Return whether an object is up to date."""
        self.count.rounds += 1
        record = await self._record()
        if record is None:
            return False
        written = [await self._publish(publisher, record) for publisher in self._publishers]
        return any(written)

    async def _publish(self, publisher: Publisher, record: NodeRecord) -> bool:
        """Write an object if it changed. Return whether it is up to date."""
        try:
            self.count.writes += await publisher.publish(record)
        except UllageError as error:
            self._on_error("api", error.message)
            return False
        return True

    async def _record(self) -> NodeRecord | None:
        """Return the last known state of the node; None while its machine or its usage is unknown."""
        looked = await self._look()
        if self._seen is None:
            return None
        try:
            use = await self._kubelet.use()
        except Unavailable as error:  # an object with more content stays unchanged
            self._on_error("kubelet", error.message)
            return None
        node, cards = self._seen
        zones = node.topology.zones if node.topology else ()
        settings = await self._kubelet.settings(sum(zone.memory.total for zone in zones if zone.memory))
        if looked and self._kubelet.fresh:
            self._read_at = self._steady()
        record = record_of(
            node,
            settings,
            card_resource=cards.resource,
            names=self._settings.names,
            use=use,
            allocatable=await self._kubelet.allocatable(),
        )
        for id_ in unknown_cards(record.cards, record.use):
            self._on_error(
                "cards", f"{id_} of {cards.resource} is held, but no such card was found; another one counts as held"
            )
        return record

    async def _look(self) -> bool:
        """Examine the machine in a thread. Return whether that succeeded in time."""
        if self._looking is None:
            self._looking = asyncio.create_task(asyncio.to_thread(self._discover))
        done, _ = await asyncio.wait([self._looking], timeout=LOOK_S)
        if not done:
            self._on_error("machine", f"its examination has not ended within {LOOK_S:g} s")
            return False
        task, self._looking = self._looking, None
        try:
            self._seen = task.result()
        except UllageError as error:
            self._on_error("machine", error.message)
            return False
        node, cards = self._seen
        for source, sentence in (("topology", node.topology_note), ("cards", cards.reason)):
            if sentence:
                self._on_error(source, sentence)
        return True

    def _discover(self) -> tuple[Node, FoundCards]:
        # Only cards and their places count here, so limits of this process do not matter.
        settings = MachineSettings(name=self._settings.node, cpu_milli=1, memory_bytes=1)
        cards = self._cards.look()
        return discover(settings, {}, cards, root=self._settings.root, topology=self._topology).node, cards

    def _on_error(self, source: str, sentence: str) -> None:
        self.count.errors += 1
        self._report(source, sentence)
