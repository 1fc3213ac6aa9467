"""Takes the pictures of the pages for the documentation: `python -m tests.web.picture docs/images`.

It needs chromium and chromedriver. The server is a real one with declared cards, the cluster an API server in this
process; the nodes, pods and sessions on them are made up.
"""

from __future__ import annotations

import base64
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.kube.api_server import ApiServer
from tests.kube.hosting import a_binding, a_machine
from tests.kube.live_front import BriefFront
from tests.kube.test_front import a_pod, put
from tests.kube.test_queue_admission import waiting
from tests.system.live_server import wait_until
from tests.web.browser import Browser, browser
from tests.web.stage import Server, enter, fill, go
from tests.web.test_cluster_page import SETTINGS, Cluster, ours, row
from tests.web.test_cluster_page import enter as enter_cluster

_MIB = 80_000
_VIEWS = {
    "live-page": ("#/", "document.querySelectorAll('.card.held').length >= 6"),
    "sessions-page": ("#/sessions?state=open", "document.querySelectorAll('tbody tr').length >= 6"),
    "session-page": ("#/sessions/finetune-13b", "document.querySelectorAll('[aria-label=Tasks] tbody tr').length >= 4"),
    "nodes-page": ("#/nodes", "document.querySelectorAll('.strip path.held').length >= 4"),
    "history-page": ("#/history?days=0.0417", "document.querySelectorAll('.lanes .bar').length >= 4"),
}
"""The views of a server by the name of their picture: the address, and what is true once the view is drawn."""


def _size(window: Browser, height: int) -> None:
    window.devtools("Emulation.setDeviceMetricsOverride", width=1280, height=height, deviceScaleFactor=1, mobile=False)


def _take(window: Browser, file: Path) -> None:
    file.write_bytes(base64.b64decode(window.picture()))


def _fill(server: ApiServer, cluster: Cluster) -> None:
    for number in range(9):
        part = {"gpu-count": "1", "compute-percent-request": str(10 * number + 5), "vram-request": "8Gi"}
        cluster.place(a_pod(f"serve-{number}", 0, **part), f"gpu-{number % 2}")
    for number in range(11):
        cluster.place(a_pod(f"train-{number}", 0, **{"gpu-count": "1"}), f"gpu-{2 + number % 2}")
    (wide,) = put(server, "pods", ours(a_pod("train-wide", 0, **{"gpu-count": "12"})))
    cluster.ask("filter", Pod=wide, NodeNames=[f"gpu-{number}" for number in range(4)])
    put(server, "pods", waiting("render-0", gpus=9, queue="vision"))


def take_cluster(file: Path) -> None:
    """Write the picture of the page of a cluster."""
    server = ApiServer()
    with closing(server), TemporaryDirectory() as folder:
        uuids = {f"gpu-{node}": {f"GPU-{node}-{card}": "" for card in range(8)} for node in range(4)}
        put(server, "nodes", *(a_machine(name, cards, mib=_MIB) for name, cards in uuids.items()))
        put(server, "gpubindings", a_binding("b", "GPU-0-7", "comfyui", "alice", "default", memory=4096))
        with closing(BriefFront(Path(folder), server.url, SETTINGS)) as front, browser(Path(folder)) as window:
            cluster = Cluster(server, front.start().wait_ready())
            _fill(server, cluster)
            _size(window, 860)
            enter_cluster(window, cluster.url)
            window.until(f"{row('waiting', 'default/render-0')}?.innerText.includes('vision (1)')")
            _take(window, file)


def take_server(folder: Path) -> None:
    """Write the pictures of the page of a server."""
    with TemporaryDirectory() as home, browser(Path(home)) as window:
        server = Server(Path(home), cards=8)
        with server.up():
            fill(server)
            server.ask("POST", "sessions/huge/cancel")  # it deserves the whole machine, and no other session anything
            wait_until(lambda: server.ask("GET", "sessions/broken")["failed"] == 3, "the short programs have ended")
            _size(window, 900)
            enter(window, server)
            for name, (address, ready) in _VIEWS.items():
                go(window, address)
                window.until(ready)
                _size(window, max(600, min(1400, int(window.run("return document.documentElement.scrollHeight")))))
                _take(window, folder / f"{name}.png")
                _size(window, 900)


def main(folder: Path) -> None:
    """Write all pictures."""
    take_server(folder)
    take_cluster(folder / "cluster-page.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
