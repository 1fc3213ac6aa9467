"""The topology of a node over HTTP, from Python and on the command line, on a real server with four cards."""

from __future__ import annotations

import json

import httpx2
import pytest

import ullage
from ullage.cli.main import main


@pytest.fixture
def node(http: httpx2.Client) -> str:
    (body,) = http.get("/v1/nodes").json()
    return body["name"]


def test_a_node_is_drawn_with_its_cards_and_who_holds_them(http: httpx2.Client, node: str):
    http.post("/v1/allocations", json={"uid": "a", "resreq": "gpu=0.25"})
    body = http.get(f"/v1/nodes/{node}/topology").json()
    (held,) = [card for card in body["cards"] if card["holders"]]
    assert (body["node"], len(body["cards"]), held["free"], held["holders"]) == (node, 4, 0.75, ["a"])
    assert body["source"] in ("sysfs", None)
    assert bool(body["zones"]) == (body["source"] is not None)


def test_the_client_and_the_command_line_show_the_same(http: httpx2.Client, node: str, capsys):
    with ullage.connect() as client:
        body = client.topology(node)
    assert [card.index for card in body.cards] == [0, 1, 2, 3]
    assert main(["topo", node, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["cards"] == http.get(f"/v1/nodes/{node}/topology").json()["cards"]
    assert main(["topo"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{node}: ")
    assert text.count("model unknown") + text.count("A100") == 4


def test_a_node_that_is_not_there_is_not_found(http: httpx2.Client, capsys):
    answer = http.get("/v1/nodes/none/topology")
    assert (answer.status_code, answer.json()["code"]) == (404, "not-found")
    assert main(["topo", "none"]) == 2
