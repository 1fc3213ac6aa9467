"""Takes the picture of the page of a cluster for the documentation: `python -m tests.web.picture FILE`.

It needs chromium and chromedriver. The cluster is an API server in this process with nodes and pods that are made up.
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
from tests.web.browser import browser
from tests.web.test_cluster_page import SETTINGS, Cluster, enter, ours, row

_MIB = 80_000
_SIZE = {"width": 1280, "height": 860, "deviceScaleFactor": 1, "mobile": False}


def _fill(server: ApiServer, cluster: Cluster) -> None:
    for number in range(9):
        part = {"gpu-count": "1", "compute-percent-request": str(10 * number + 5), "vram-request": "8Gi"}
        cluster.place(a_pod(f"serve-{number}", 0, **part), f"gpu-{number % 2}")
    for number in range(11):
        cluster.place(a_pod(f"train-{number}", 0, **{"gpu-count": "1"}), f"gpu-{2 + number % 2}")
    (wide,) = put(server, "pods", ours(a_pod("train-wide", 0, **{"gpu-count": "12"})))
    cluster.ask("filter", Pod=wide, NodeNames=[f"gpu-{number}" for number in range(4)])
    put(server, "pods", waiting("render-0", gpus=9, queue="vision"))


def main(file: Path) -> None:
    """Write the picture."""
    server = ApiServer()
    with closing(server), TemporaryDirectory() as folder:
        uuids = {f"gpu-{node}": {f"GPU-{node}-{card}": "" for card in range(8)} for node in range(4)}
        put(server, "nodes", *(a_machine(name, cards, mib=_MIB) for name, cards in uuids.items()))
        put(server, "gpubindings", a_binding("b", "GPU-0-7", "comfyui", "alice", "default", memory=4096))
        with closing(BriefFront(Path(folder), server.url, SETTINGS)) as front, browser(Path(folder)) as window:
            cluster = Cluster(server, front.start().wait_ready())
            _fill(server, cluster)
            window.devtools("Emulation.setDeviceMetricsOverride", **_SIZE)
            enter(window, cluster.url)
            window.until(f"{row('waiting', 'default/render-0')}?.innerText.includes('vision (1)')")
            file.write_bytes(base64.b64decode(window.picture()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
