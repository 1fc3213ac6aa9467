"""The exporter process: it connects, logs, and ends on SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path

from ullage.inventory.nvml import NvmlCards
from ullage.kube.client.connection import connect
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.exporter.exporter import Exporter
from ullage.kube.exporter.settings import ExporterSettings
from ullage.kube.recent import Recent

_REMEMBERED = 1000
"""Maximum number of recent messages that are not logged again."""

log = logging.getLogger("ullage.exporter")


def serve(settings: ExporterSettings, kubeconfig: Path | None = None, master: str | None = None) -> int:
    """Export until SIGTERM or SIGINT. Return the exit code. `master` overrides the address in the kubeconfig.

    Raises:
        InvalidRequest: (`kube-config`) the configuration for the API server cannot be used.

    """
    form = "%(asctime)s %(levelname)s %(name)s %(message)s"
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=form)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs every request
    asyncio.run(_export(settings, kubeconfig, master))
    return 0


async def _export(settings: ExporterSettings, kubeconfig: Path | None, master: str | None) -> None:
    async with connect(kubeconfig, master=master) as connection:
        work = asyncio.create_task(Exporter(HttpKubeApi(connection), settings, NvmlCards(), ErrorLog()).run())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, work.cancel)
        log.info("node %s is exported every %g s", settings.node, settings.period_s)
        await asyncio.wait([work])
        if not work.cancelled():
            work.result()


class ErrorLog:
    """Logs each message once, and again when it is no longer among the most recent ones."""

    def __init__(self) -> None:
        self._logged: Recent[tuple[str, str], None] = Recent(_REMEMBERED)

    def __call__(self, source: str, sentence: str) -> None:
        known = (source, sentence) in self._logged
        self._logged[source, sentence] = None
        if not known:
            log.warning("%s: %s", source, sentence)
