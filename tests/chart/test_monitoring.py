"""The board and the alerts of the chart use only metrics and labels that a front serves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.chart.promql import used_by
from tests.chart.test_chart import CHART, named, of_kind, render, schemas
from tests.kube.api_server import ApiServer
from tests.kube.conftest import anyio_backend, api, client, server, until  # noqa: F401 - the fixtures
from tests.kube.hosting import a_binding, a_machine
from tests.kube.test_front import a_pod, put, running
from tests.kube.test_queue_admission import waiting
from tests.kube.test_resource_quotas import MEMORY, a_quota
from ullage.kube.bindings.terms import BindingScope, BindingTerms
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.metrics import FrontMetrics
from ullage.kube.mirror.cards import RegisteredCards

ON = {"dashboard": {"enabled": True}, "prometheusRule": {"enabled": True}, "serviceMonitor": {"enabled": True}}


class Expression(NamedTuple):
    """An expression of a panel or an alert, and the labels that its texts name."""

    where: str
    text: str
    shown: frozenset[str]


def board() -> dict[str, Any]:
    text = named(render(ON), "ConfigMap", "ullage-dashboard")["data"]["ullage.json"]
    found: dict[str, Any] = json.loads(text)
    return found


def alerts() -> list[dict[str, Any]]:
    (rules,) = of_kind(render(ON), "PrometheusRule")
    return [rule for group in rules["spec"]["groups"] for rule in group["rules"]]


def expressions() -> Iterator[Expression]:
    for panel in board()["panels"]:
        for target in panel.get("targets", ()):
            shown = frozenset(re.findall(r"\{\{\s*(\w+)\s*\}\}", target["legendFormat"]))
            yield Expression(panel["title"], target["expr"], shown)
    for rule in alerts():
        texts = " ".join(rule["annotations"].values())
        yield Expression(rule["alert"], rule["expr"], frozenset(re.findall(r"\$labels\.(\w+)", texts)))


@pytest.fixture
async def exported(server: ApiServer, api: HttpKubeApi) -> dict[str, frozenset[str]]:  # noqa: F811 - the fixtures
    """Return the labels of each metric of a front with queues, quotas, bindings, claims, and a pod that was refused."""
    put(server, "nodes", a_machine("n1", {"GPU-1": "1", "GPU-2": ""}))
    put(server, "resourcequotas", a_quota("quota", {MEMORY: "60000"}))
    put(server, "gpubindings", a_binding("b", "GPU-1", "comfyui", "alice", "default", memory=4096))
    (pod,) = put(server, "pods", a_pod("p"))
    put(server, "pods", waiting("queued", gpus=9))
    terms = BindingTerms(BindingScope.LABELLED)
    readers = [RegisteredCards()]
    async with running(server, api, readers=readers, resource_quotas=True, bindings=terms) as up:
        metrics = FrontMetrics(up.front)
        assert await up.place(pod, ["n1"]) == "!n1"
        metrics.call("bind", 0.1, "ok")
        up.front.mirror.refused["n1", "TopologyAffinityError"] += 1
        await until(lambda: bool(up.front.admission.gates.figures()), "the pod waits in its queue")
        assert up.front.claims is not None
        served = up.front.claims.mirror
        await until(lambda: served.served, "claims are served")
        page = (await metrics.page()).decode()
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    return {name: frozenset().union(*(each.labels for each in samples if each.name == name)) for name, *_ in samples}


@pytest.mark.anyio
@pytest.mark.timeout(900)
async def test_every_metric_and_label_is_exported(exported: dict[str, frozenset[str]]) -> None:
    found = list(expressions())
    assert len(found) > 40
    for each in found:
        used = used_by(each.text)
        assert used.metrics, each
        for name, labels in used.metrics.items():
            assert name in exported, f"{each.where}: no metric {name}"
            assert labels <= exported[name], f"{each.where}: {name} has only {sorted(exported[name])}"
            assert used.groups <= exported[name], f"{each.where}: {name} has only {sorted(exported[name])}"
        assert each.shown <= used.groups, f"{each.where}: the result has only {sorted(used.groups)}"
    (query,) = (each["query"]["query"] for each in board()["templating"]["list"] if each["type"] == "query")
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups()
    assert label in exported[metric]


def test_values_that_every_replica_exports_are_not_added_up() -> None:
    """A sum over what each replica says of a card or queue has to take one of them first."""
    for each in expressions():
        for summed in re.findall(r"\b(?:sum|avg|count)\s*(?:by\s*\([^)]*\)\s*)?\((\w*)", each.text):
            own = summed.startswith(("ullage_kube_leader", "ullage_kube_calls"))
            assert own or summed in ("max", "count", "rate", "increase"), each


def test_it_is_there_only_where_it_is_wanted() -> None:
    assert of_kind(render(), "PrometheusRule", "ServiceMonitor") == []
    assert [each for each in of_kind(render(), "ConfigMap") if each["metadata"]["name"].endswith("dashboard")] == []
    own = {"dashboard": {"enabled": True, "labels": {"team": "a"}, "annotations": {"grafana_folder": "GPUs"}}}
    metadata = named(render(own), "ConfigMap", "ullage-dashboard")["metadata"]
    assert metadata["labels"]["team"] == "a"
    assert metadata["labels"]["grafana_dashboard"] == "1"
    assert metadata["annotations"] == {"grafana_folder": "GPUs"}
    schemas.validate(named(render(own), "ConfigMap", "ullage-dashboard"), "1.36", strict=True)


def test_the_board_is_one_that_grafana_reads() -> None:
    found = board()
    assert (found["title"], found["uid"]) == ("Ullage", "ullage-kube")
    panels = found["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(cells) == len(set(cells)), "panels lie on each other"
    assert max(x for x, _ in cells) == 23
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert all(panel["datasource"] == source for panel in panels if panel["type"] != "row")


def test_alerts_say_what_it_is_and_what_to_do() -> None:
    found = alerts()
    assert len({rule["alert"] for rule in found}) == len(found)
    for rule in found:
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
    text = (CHART / "monitoring/alerts.yaml").read_text()
    assert [rule["alert"] for group in yaml.safe_load(text)["groups"] for rule in group["rules"]] == [
        rule["alert"] for rule in found
    ], "Prometheus reads the file without its operator"


@pytest.mark.parametrize(
    ("expression", "metrics", "groups"),
    [
        ("up", {"up": set()}, set()),
        ('rate(a_total{x="up(", y!~"z"}[5m]) / 2 > bool 0.5', {"a_total": {"x", "y"}}, set()),
        ('sum by (a, b) (max by (a) (m{c=~"$v"})) or vector(0)', {"m": {"c"}}, {"a", "b"}),
        ("time() - min by (q) (old) > 43200", {"old": set()}, {"q"}),
    ],
)
def test_expressions_are_taken_apart(expression: str, metrics: dict[str, set[str]], groups: set[str]) -> None:
    used = used_by(expression)
    assert (used.metrics, used.groups) == (metrics, groups)


@pytest.mark.parametrize("expression", ["sum(a", "a)", "rate(a[5m)]"])
def test_brackets_that_do_not_match_are_found(expression: str) -> None:
    with pytest.raises(ValueError, match="bracket"):
        used_by(expression)
