"""One node of a recorded machine with its exporter, before a server of the API."""

from __future__ import annotations

import json
from pathlib import Path

from fake_nvml import FakeNvml
from tests.kube.api_server import ApiServer

from ullage.inventory.nvml import NvmlCards
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.exporter.exporter import Exporter
from ullage.kube.exporter.settings import ExporterSettings
from ullage.wire.topology.numatopology import read_numatopology


class Bench:
    """One node with an exporter that is stepped by hand; `clock` is its time in seconds."""

    def __init__(
        self, server: ApiServer, api: HttpKubeApi, root: Path, library: FakeNvml, card_resource: str = ""
    ) -> None:
        self.server, self.api, self.root, self.library = server, api, root, library
        self.clock = 1000.0
        self.said: list[tuple[str, str]] = []
        self.kubelet = root / "kubelet"
        self.kubelet.mkdir()
        self.settings = ExporterSettings(
            "n1",
            root,
            self.kubelet / "sock",
            self.kubelet / "cpu",
            self.kubelet / "devices",
            self.kubelet / "config",
            names={"nic": "example.com/nic"},
            card_resource=card_resource,
        )
        self.configure(topologyManagerPolicy="restricted", cpuManagerPolicy="static", reservedSystemCPUs="0,8")
        server.do(lambda: server.rules.create("nodes", "", {"metadata": {"name": "n1"}}))
        self.exporter = self.fresh()

    def configure(self, **words: str) -> None:
        (self.kubelet / "config").write_text(json.dumps(words))

    def fresh(self) -> Exporter:
        """Restart the exporter."""
        return Exporter(
            self.api,
            self.settings,
            NvmlCards(self.library),
            lambda source, sentence: self.said.append((source, sentence)),
            now=lambda: self.clock,
            steady=lambda: self.clock,
        )

    async def round(self, later_s: float = 3.0) -> bool:
        self.clock += later_s
        return await self.exporter.round()

    def stored(self) -> dict:
        return self.server.do(lambda: self.server.rules.get(("numatopologies", "", "n1")))

    def writes(self) -> int:
        return sum(method != "GET" and "numatopologies" in path for method, path in self.server.asked)

    def record(self):
        record, dropped = read_numatopology(self.stored())
        assert dropped == ()
        return record
