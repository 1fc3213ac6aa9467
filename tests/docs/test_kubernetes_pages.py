"""The examples of the pages about Kubernetes are valid for a cluster, Helm, the settings and the front."""

import re
import shlex
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.test_examples import ROOT, blocks
from tests.kube.api_server import ApiServer
from tests.kube.claims import GATE, a_class, allocated, cards, edit, gated
from tests.kube.claims import a_node as a_node_with_claims
from tests.kube.conftest import anyio_backend, api, client, server, until  # noqa: F401 - the fixtures
from tests.kube.hami_node import PHASE, HamiNode, hami_node
from tests.kube.test_front import a_node, cards_of, put, running
from tests.kube.test_webhook import admitted
from ullage.bootstrap.settings import read_settings
from ullage.cli import kubectl
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.events import Reason
from ullage.kube.mirror.cards import RegisteredCards
from ullage.kube.queues.levels import Levels
from ullage.kube.queues.subgroups import KAI_LABEL, Division, of_subgroups
from ullage.kube.webhook.webhook import AdmissionSettings, Webhook
from ullage.model.claim import Subgroup
from ullage.wire.pod.gate import gate_of

schemas = pytest.importorskip(
    "kubernetes_validate", reason="kubernetes-validate is in the lock, and not installed here"
)
helm = pytest.importorskip("helm_python", reason="helm-python-sdk is in the lock, and not installed here")

INSTALL, PLACE, WAIT, CLAIM, BIND, LOOK = (
    f"docs/how-to/{name}.md"
    for name in (
        "kubernetes",
        "place-pods-of-a-cluster",
        "queue-pods",
        "claim-devices",
        "bind-applications-to-cards",
        "look-at-the-cluster",
    )
)
KAI = "docs/how-to/come-from-kai.md"
PAGES = (INSTALL, PLACE, WAIT, CLAIM, BIND, LOOK)
CHART = ROOT / "charts/ullage"
NEWEST = "1.36"
pages = pytest.mark.parametrize("page", PAGES)


def documents(page: str) -> Iterator[dict[str, Any]]:
    for block in blocks(page, "yaml"):
        yield from yaml.safe_load_all(block)


def objects(page: str) -> list[dict[str, Any]]:
    """Objects of an API server; values of the chart are none."""
    return [each for each in documents(page) if "metadata" in each]


def values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


def has(names: str) -> bool:
    """Return whether a value of the chart has that name, with dots between its parts."""
    try:
        reduce(lambda found, name: found[name], names.split("."), values())
    except (KeyError, TypeError):
        return False
    return True


@pytest.mark.parametrize("page", [INSTALL, WAIT, CLAIM, BIND, LOOK])
def test_objects_are_valid_for_a_cluster(page: str) -> None:
    found = objects(page)
    assert found
    for document in found:
        schemas.validate(document, NEWEST, strict=True)


@pytest.mark.parametrize("page", [INSTALL, BIND, LOOK])
def test_values_that_are_set_are_those_of_the_chart(page: str) -> None:
    commands = [line for text in blocks(page, "bash") for line in text.replace("\\\n", "").splitlines()]
    given = [
        pair.partition("=")
        for line in commands
        if line.startswith("helm ")
        for word, pair in zip(shlex.split(line), shlex.split(line)[1:], strict=False)
        if word == "--set"
    ]
    assert given
    for name, _, _ in given:
        assert has(name), f"the chart has no value {name}"


def test_commands_of_the_plugin_are_those_that_it_takes() -> None:
    (commands,) = blocks(LOOK, "console")
    lines = [line.removeprefix("$ ") for line in commands.splitlines()]
    verbs = {kubectl.build_parser().parse_args(shlex.split(line)[2:]).verb for line in lines}
    assert verbs == {"why", "plan", "top", "cards", "queues", "bindings"}


def test_the_important_values_are_those_of_the_chart() -> None:
    table = (ROOT / INSTALL).read_text().partition("Important values")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = [name.partition(":")[0] for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    assert len(named) > 10
    assert [name for name in named if not has(name)] == []


def test_the_chart_takes_the_values_for_queues(tmp_path: Path) -> None:
    given, _ = documents(WAIT)
    texts = helm.Chart.load(CHART).render(given, name="ullage", namespace="gpus").values()
    made = [each for text in texts for each in yaml.safe_load_all(text) if each]
    (file,) = (each["data"]["ullage.toml"] for each in made if "ullage.toml" in each.get("data", ()))
    (tmp_path / "ullage.toml").write_text(file)
    read = read_settings(tmp_path / "ullage.toml")
    assert read.kube.queues == "named"
    assert [(queue.name, queue.weight) for queue in read.share_tree()] == [("research", 2), ("vision", 1)]


@pytest.mark.parametrize("page", [PLACE, WAIT, CLAIM, BIND])
def test_settings_are_read(tmp_path: Path, page: str) -> None:
    found = blocks(page, "toml")
    assert found
    for text in found:
        file = tmp_path / "ullage.toml"
        file.write_text(text)
        read_settings(file)


def test_the_pod_in_a_queue_waits_behind_a_gate(tmp_path: Path) -> None:
    (pod,), (gated, direct) = objects(WAIT), blocks(WAIT, "toml")
    spec = admitted(pod, _webhook(tmp_path, gated))["spec"]
    assert (spec["schedulerName"], spec["schedulingGates"]) == ("ullage", [{"name": gate_of("ullage.io")}])
    spec = admitted(pod, _webhook(tmp_path, direct))["spec"]
    assert spec["schedulerName"] == "ullage-direct"
    assert "schedulingGates" not in spec


def _webhook(folder: Path, text: str) -> Webhook:
    (folder / "ullage.toml").write_text(text)
    read = read_settings(folder / "ullage.toml")
    binds = read.kube.binder == "ullage"
    return Webhook(AdmissionSettings(queues=read.kube.queues, tree=read.share_tree(), binds_itself=binds))


def test_the_group_with_subgroups_is_read() -> None:
    (group,) = documents(KAI)
    levels = Levels(topologies={"tree": ("block", "rack")})
    for name, members in (("prefill", 4), ("decode", 8)):
        found = of_subgroups(group["spec"], {KAI_LABEL: name}, levels)
        assert found == Division(12, 2, (Subgroup(name, members, "rack", "rack"),))


def test_a_scheduler_of_ones_own_asks_as_that_of_the_chart() -> None:
    (shown,) = documents(PLACE)
    of_the_chart = values()["scheduler"]
    (extender,), (profile,) = shown["extenders"], shown["profiles"]
    of_nvidia = [name for name in of_the_chart["ignoredResources"] if name.startswith("nvidia.com/")]
    assert profile["pluginConfig"][0]["args"]["ignoredResources"] == of_nvidia
    assert extender.get("managedResources", []) == of_the_chart["managedResources"]
    assert (extender["weight"], extender["httpTimeout"]) == (of_the_chart["weight"], of_the_chart["httpTimeout"])
    assert extender["nodeCacheCapable"]
    assert not extender["ignorable"]


def test_documented_metrics_are_exactly_the_exported_ones() -> None:
    exported = set()
    for kind, name in re.findall(r'(\w+)\(\s*"(ullage_kube_\w+)"', (ROOT / "src/ullage/kube/metrics.py").read_text()):
        exported.add(f"{name}_total" if "Counter" in kind else name)
    named = set(re.findall(r"`(ullage_kube_\w+[a-z])`", "".join((ROOT / page).read_text() for page in PAGES)))
    assert named == exported


def test_every_event_is_named() -> None:
    text = (ROOT / PLACE).read_text()
    assert [reason for reason in Reason if f"`{reason}`" not in text] == []


def shared(name: str) -> dict[str, Any]:
    """The pod of that name on the page about installing, as an API server makes it."""
    (found,) = (each for each in objects(INSTALL) if each["metadata"]["name"] == name)
    return found | {"metadata": {"namespace": "default"} | found["metadata"], "status": {"phase": "Pending"}}


@pytest.mark.anyio
@pytest.mark.timeout(900)
async def test_two_halves_are_on_one_card(server: ApiServer, api: HttpKubeApi) -> None:  # noqa: F811 - the fixtures
    half = shared("half-1")
    put(server, "nodes", hami_node("a", "GPU-1", "GPU-2", mib=40960), a_node("of-unknown-cards"))
    named = [half | {"metadata": half["metadata"] | {"name": f"half-{number}"}} for number in (1, 2, 3)]
    *pods, third = put(server, "pods", *named)
    async with running(server, api, readers=[RegisteredCards()]) as up:
        assert [await up.place(pod, ["a", "of-unknown-cards"]) for pod in pods] == ["!a", "!a"]
        refused = await up.ask("filter", Pod=third, NodeNames=["of-unknown-cards"])
        assert "gpu-capacity-unknown" in refused["FailedAndUnresolvableNodes"]["of-unknown-cards"]
    assert cards_of(server, "half-1") == cards_of(server, "half-2") != []


@pytest.mark.anyio
@pytest.mark.timeout(900)
async def test_the_plugin_hands_out_the_part(server: ApiServer, api: HttpKubeApi) -> None:  # noqa: F811 - the fixtures
    put(server, "nodes", hami_node("a", "GPU-1", mib=40960))
    (pod,) = put(server, "pods", shared("part"))
    async with HamiNode(api, "a") as plugin, running(server, api, readers=[RegisteredCards()]) as up:
        assert await up.place(pod, ["a"]) == "!a"
        await until(lambda: bool(plugin.granted or plugin.errors), "the plugin was asked")
    assert plugin.granted == {("part", "main"): [("GPU-1", 20480, 50)]}
    assert (
        server.do(lambda: server.rules.get(("pods", "default", "part")))["metadata"]["annotations"][PHASE] == "success"
    )


@pytest.mark.anyio
@pytest.mark.timeout(900)
async def test_the_claim_gets_two_cards_of_one_zone(server: ApiServer, api: HttpKubeApi) -> None:  # noqa: F811 - the fixtures
    pytest.importorskip("cel_expr_python", reason="cel-expr-python is in the lock, and not installed here")
    template, pod = objects(CLAIM)
    put(server, "deviceclasses", a_class("gpu.nvidia.com"))
    put(server, "nodes", a_node_with_claims("a"))
    put(server, "resourceslices", cards("a", 4, zones=2))
    pod |= {"metadata": pod["metadata"] | {"namespace": "default"}, "status": {"phase": "Pending"}}
    pod["spec"]["schedulingGates"] = [{"name": GATE}]
    (asked,) = put(server, "pods", pod)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "train", "uid": asked["metadata"]["uid"], "controller": True}
    metadata = {"name": "train-cards", "namespace": "default", "ownerReferences": [owner]}
    put(server, "resourceclaims", {"metadata": metadata, "spec": template["spec"]["spec"]})
    made = {"name": "cards", "resourceClaimName": "train-cards"}  # as the cluster makes a claim from its template
    edit(server, "pods", "train", resourceClaimStatuses=[made])
    async with running(server, api):
        await until(lambda: not gated(server, "train"), "it is let go")
    assert sorted(allocated(server, "train-cards")) in (["a/gpu-0", "a/gpu-1"], ["a/gpu-2", "a/gpu-3"])
