"""The page of a cluster in a real browser, on `ullage kube` before an API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.kube.api_server import TOKEN, ApiServer
from tests.kube.hami_node import hami_node
from tests.kube.hosting import a_binding, a_machine
from tests.kube.live_front import BriefFront
from tests.kube.test_front import a_node, a_pod, binding, put
from tests.kube.test_queue_admission import waiting
from tests.web.browser import MISSING, Browser, browser

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not on PATH: {', '.join(MISSING)}"),
    pytest.mark.timeout(900),
]

HOSTILE = "<img src=x onerror=document.title='broken'>"
SETTINGS = """
page_bind = "127.0.0.1:0"
queues = "named"
[kube.bindings]
scope = "labelled"
[queues.research]
weight = 2
[queues.vision]
parent = "research"
"""


class Cluster:
    """A cluster of three nodes, one of whose cards has pods on it, and a front with a page."""

    def __init__(self, server: ApiServer, front: BriefFront) -> None:
        self.server, self.front = server, front
        self.huge: dict[str, Any] = {}

    @property
    def url(self) -> str:
        return self.front.url("page")

    def ask(self, verb: str, **body: Any) -> Any:
        answer = httpx2.post(f"{self.front.url('extender')}/{verb}", content=json.dumps(body), timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def place(self, pod: dict[str, Any], node: str) -> None:
        (pod,) = put(self.server, "pods", pod)
        answer = self.ask("bind", **binding(pod, node))
        assert answer["Error"] == ""

    def refuse_huge(self) -> None:
        """Have the front refuse a pod; after its restart it does not know that it has."""
        assert self.ask("filter", Pod=self.huge, NodeNames=["alpha", "beta"])["NodeNames"] == []

    def remove(self, *names: str) -> None:
        for name in names:
            key = ("pods", "default", name)
            self.server.do(lambda key=key: self.server.rules.delete(key, {"gracePeriodSeconds": 0}))


def a_part(name: str, cores: int) -> dict[str, Any]:
    pod = a_pod(name)
    limits = {"nvidia.com/gpumem": "4000", "nvidia.com/gpucores": str(cores)}
    pod["spec"]["containers"][0]["resources"]["limits"] |= limits
    return pod


def ours(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod, for the scheduler that is looked at."""
    return {**pod, "spec": {**pod["spec"], "schedulerName": "ullage"}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    server = ApiServer()
    with closing(server):
        put(server, "nodes", hami_node("alpha", "GPU-a-0", "GPU-a-1", mib=16_000), a_node("beta", 4))
        put(server, "nodes", a_machine("gamma", {"GPU-c-0": "1"}), a_node("delta", 1, unschedulable=True))
        put(server, "gpubindings", a_binding("b", "GPU-c-0", "comfyui", "alice", "default", memory=4096))
        with closing(BriefFront(tmp_path_factory.mktemp("front"), server.url, SETTINGS)) as front:
            found = Cluster(server, front.start().wait_ready())
            found.place(a_part("part", 25), "alpha")
            (found.huge,) = put(server, "pods", ours(a_pod("huge", 9)))
            put(server, "pods", waiting("queued", gpus=9, queue="vision"))
            yield found


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


def enter(window: Browser, url: str) -> None:
    window.open("about:blank")
    window.complaints()
    window.open(url)
    window.until("document.body.dataset.link === 'live'")


def tile(uuid: str) -> str:
    return f"document.querySelector('.tile[data-uuid=\"{uuid}\"]')"


def row(table: str, name: str) -> str:
    found = f"[...document.querySelectorAll('#{table} tbody tr')]"
    return f"{found}.find(each => each.firstElementChild.textContent === '{name}')"


def test_nodes_cards_queues_pods_and_bindings_are_there(cluster: Cluster, window: Browser) -> None:
    cluster.refuse_huge()
    enter(window, cluster.url)
    assert window.run("return document.querySelectorAll('.heat-node').length") == 4
    assert window.run("return document.querySelectorAll('.heat-node .tile').length") == 8
    held = "[...document.querySelectorAll('.heat-node .tile')].filter(each => each.dataset.heat !== '0')"
    assert window.until(f"{held}.map(each => each.textContent).join()") == "25"
    assert window.run("return document.querySelector('.badge:not([hidden])').textContent") == "cordoned"
    window.until(f"{row('waiting', 'default/huge')}?.innerText.includes('FilteringFailed')")
    reason = window.run(f"return {row('waiting', 'default/huge')}.innerText")
    assert "asks for 9 whole cards" in reason
    window.until(f"{row('waiting', 'default/queued')}?.innerText.includes('vision (1)')")
    queues = "[...document.querySelectorAll('#queues .name')].map(each => each.textContent).join()"
    assert window.run(f"return {queues}") == "default,research,vision"
    figures = "[...document.querySelectorAll('#queues .row')].map(each => each.children[2].textContent).join()"
    window.until(f"{figures} === '1, 0,0, 1,0, 1'")
    assert "GPU-c-0" in window.run(f"return {row('bindings', 'comfyui')}.innerText")
    assert "leads" in window.run("return document.getElementById('front').textContent")
    assert window.run("return document.cookie") == ""
    assert window.complaints() == []


def test_it_follows_the_cluster_and_keeps_what_did_not_change(cluster: Cluster, window: Browser) -> None:
    enter(window, cluster.url)
    window.run("window.kept = [...document.querySelectorAll('.tile, #waiting tbody tr')]")
    cluster.place(a_pod("whole"), "beta")
    window.until("[...document.querySelectorAll('.tile')].filter(each => each.dataset.heat === '10').length === 2")
    assert "default/whole" in window.run("return document.querySelector('.heat .tile[data-heat=\"10\"]').title")
    assert window.run("return window.kept.every(element => element.isConnected)")
    cluster.remove("whole")
    window.until("document.querySelectorAll('.heat .tile[data-heat=\"10\"]').length === 0")
    assert window.complaints() == []


def test_a_card_that_is_chosen_says_its_facts_and_the_filter_finds_pods(cluster: Cluster, window: Browser) -> None:
    enter(window, cluster.url)
    window.until(f"{tile('GPU-a-0')}.dataset.heat + {tile('GPU-a-1')}.dataset.heat !== '00'")
    window.run("document.querySelector('.tile[data-heat=\"3\"]').click()")
    facts = window.run("return document.querySelector('.card-facts:not([hidden])').innerText")
    assert "default/part: 0.25" in facts
    assert "memory free 11.7 / 15.6 GiB" in facts
    window.run("document.querySelector('.tile[aria-pressed=true]').click()")
    assert window.run("return document.querySelector('.card-facts:not([hidden])')") is None
    window.run("filter.value = 'default/part'; filter.dispatchEvent(new Event('input'))")
    shown = "return [...document.querySelectorAll('.heat .node-name')].map(each => each.textContent).join()"
    assert window.run(shown) == "alpha"
    assert window.run("return document.getElementById('shown').textContent") == "1 of 4 nodes"
    window.run("filter.value = 'nowhere'; filter.dispatchEvent(new Event('input'))")
    assert window.run(shown) == ""


def test_input_of_users_is_shown_as_text(cluster: Cluster, window: Browser) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": HOSTILE}
    (pod,) = put(cluster.server, "pods", ours(a_pod("hostile")))
    reported = {**pod, "status": {"phase": "Pending", "conditions": [condition]}}
    key = ("pods", "default", "hostile")
    cluster.server.do(lambda: cluster.server.rules.change(key, lambda _: reported, "status"))
    enter(window, cluster.url)
    told_text = f"{row('waiting', 'default/hostile')}?.querySelector('.reason .text').textContent"
    window.until(f"{told_text} === {json.dumps(HOSTILE)}")
    assert window.run("return document.querySelectorAll('main img').length") == 0
    assert window.run("return document.title") == "Ullage · cluster"
    cluster.remove("hostile")


def test_a_front_that_ends_is_shown_and_found_again(cluster: Cluster, window: Browser, tmp_path: Path) -> None:
    settings = SETTINGS.replace("127.0.0.1:0", f"127.0.0.1:{cluster.url.rpartition(':')[2]}")
    enter(window, cluster.url)
    tiles = window.run("return document.querySelectorAll('.tile').length")
    assert cluster.front.end() == 0
    window.until("document.body.dataset.link === 'lost'")
    assert window.run("return document.querySelectorAll('.tile').length") == tiles
    url = cluster.url
    with closing(BriefFront(tmp_path, cluster.server.url, settings)) as second:
        assert second.start().url("page") == url
        window.until("document.body.dataset.link === 'live'")
        assert second.wait_ready().end() == 0
    cluster.front.start().wait_ready()


def test_it_works_behind_the_proxy_of_an_api_server(cluster: Cluster, window: Browser) -> None:
    cluster.server.proxied["gpus/ullage:page"] = cluster.url
    window.devtools("Network.enable")
    window.devtools("Network.setExtraHTTPHeaders", headers={"Authorization": f"Bearer {TOKEN}"})
    try:
        enter(window, f"{cluster.server.url}/api/v1/namespaces/gpus/services/ullage:page/proxy/")
        assert window.run("return document.querySelectorAll('.heat-node').length") == 4
        assert window.run("return getComputedStyle(document.querySelector('.heat')).display") == "grid"
        window.complaints()  # a browser asks for /favicon.ico at the root of the API server
    finally:
        window.devtools("Network.setExtraHTTPHeaders", headers={})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_numbers_on_cards_can_be_read(cluster: Cluster, window: Browser, scheme: str) -> None:
    window.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    enter(window, cluster.url)
    contrasts = window.run(CONTRASTS)
    assert len(contrasts) == 11
    assert min(contrasts) >= 4.5, contrasts
    window.devtools("Emulation.setEmulatedMedia", features=[])


CONTRASTS = """
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const light = (color) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
        const parts = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(value => value / 255);
        const [r, g, b] = parts.map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const tile = document.querySelector(".heat .tile");
    return [...Array(11).keys()].map(heat => {
        tile.dataset.heat = heat;
        const style = getComputedStyle(tile);
        const [a, b] = [light(style.color), light(style.backgroundColor)].sort((one, other) => other - one);
        return (a + 0.05) / (b + 0.05);
    });
"""
"""The contrast of the text of a tile with its ground, for each heat."""


@pytest.mark.parametrize("width", [360, 400, 800, 1280, 1920])
def test_nothing_is_wider_than_the_screen(cluster: Cluster, window: Browser, width: int) -> None:
    window.devtools("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
    enter(window, cluster.url)
    window.until(row("waiting", "default/huge"))
    assert window.run("return document.documentElement.scrollWidth") <= width
    outside = "[...document.querySelectorAll('section')].filter(each => each.scrollWidth > each.clientWidth).length"
    assert window.run(f"return {outside}") == 0
