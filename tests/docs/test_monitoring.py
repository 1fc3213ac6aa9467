"""The Grafana board of a server, and the page about it, use only metrics and labels that a server serves."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from docs.tables import metrics

from tests.chart.promql import used_by
from tests.docs.test_examples import ROOT, blocks

PAGE = "docs/how-to/watch-a-server.md"
BOARD: dict[str, Any] = json.loads((ROOT / "docs" / "monitoring" / "dashboard.json").read_text())
EXPORTED = {
    name: frozenset(re.findall(r"`(\w+)`", labels))
    for name, labels in re.findall(r"^\| `(\w+)` \| \w+ \| ([^|]*) \|", metrics(), re.MULTILINE)
}
TARGETS = [(panel["title"], target) for panel in BOARD["panels"] for target in panel.get("targets", ())]


@pytest.mark.parametrize(("title", "target"), TARGETS, ids=[f"{title} {target['refId']}" for title, target in TARGETS])
def test_every_query_of_the_board_names_metrics_and_labels_that_a_server_serves(
    title: str, target: dict[str, Any]
) -> None:
    used = used_by(target["expr"])
    assert used.metrics
    grouped = used.groups or frozenset().union(*(EXPORTED[name] for name in used.metrics))
    for name, labels in used.metrics.items():
        assert name in EXPORTED, f"{title}: no metric {name}"
        assert labels | used.groups <= EXPORTED[name], f"{title}: {name} has only {sorted(EXPORTED[name])}"
    assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= grouped, title


@pytest.mark.parametrize("target", [t["expr"] for title, t in TARGETS if title in ("GPUs of nodes", "CPUs of nodes")])
def test_thousandths_are_shown_as_whole_cards_and_cores(target: str) -> None:
    assert target.endswith(" / 1000")


def test_every_metric_of_a_server_is_on_the_board_or_left_out_on_purpose() -> None:
    shown = {name for _, target in TARGETS for name in used_by(target["expr"]).metrics}
    left_out = {
        "ullage_allocations_total",
        "ullage_allocation_releases_total",
        "ullage_allocation_expiries_total",
        "ullage_allocation_adjustments_total",
        "ullage_learned_tasks_total",
    }
    assert set(EXPORTED) - shown == left_out


def test_the_panels_do_not_lie_on_each_other_and_have_the_chosen_source() -> None:
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert all(panel["datasource"] == source for panel in panels if panel["type"] != "row")


def test_the_page_shows_a_scrape_configuration_and_alarms_on_metrics_that_exist() -> None:
    (text,) = blocks(PAGE, "yaml")
    (job,) = yaml.safe_load(text)["scrape_configs"]
    alarms = re.findall(r"^\| `([^`]+)` \|", (ROOT / PAGE).read_text(), re.MULTILINE)
    (command,) = blocks(PAGE, "console")
    assert command.strip().endswith(f"> {job['authorization']['credentials_file']}")
    assert "--role viewer" in command
    assert len(alarms) == 3
    for alarm in alarms:
        for name, labels in used_by(alarm).metrics.items():
            assert labels <= EXPORTED.get(name, frozenset({"job"} if name == "up" else ())), alarm
