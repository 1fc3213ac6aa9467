"""The manifests of the chart, rendered by Helm: valid for a cluster, and without unneeded rights."""

import base64
import hashlib
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.x509 import DNSName, SubjectAlternativeName, load_pem_x509_certificate

from ullage.bootstrap.kube_server import DRAIN_S
from ullage.bootstrap.settings import read_settings
from ullage.cli.main import build_parser
from ullage.kube.client.holder import CONTAINER, NAMESPACE, POD, UID
from ullage.kube.client.http import KubeTimeouts
from ullage.kube.leader.leader_label import LEADER
from ullage.model.card_pool import PoolRule
from ullage.model.compute import AppQuota, CardQuota, OwnerQuota
from ullage.model.gpu import Gpu
from ullage.model.holding import Holding, PodHolding, Use
from ullage.model.node_record import NodeRecord, Stock
from ullage.model.topology import Cpu, Kubelet, Topology, Zone
from ullage.wire.dialect import PodSettings
from ullage.wire.hami.results import card_records, node_keys, result_keys
from ullage.wire.pod.bind import OUTPUT
from ullage.wire.topology.numatopology_object import numatopology_object
from ullage.wire.vendors.shipped import FAMILIES

helm = pytest.importorskip("helm_python", reason="helm-python-sdk is in the lock, and not installed here")
schemas = pytest.importorskip(
    "kubernetes_validate", reason="kubernetes-validate is in the lock, and not installed here"
)

jsonschema = pytest.importorskip("jsonschema", reason="no jsonschema, which the lock has")

CHART = Path(__file__).parents[2] / "charts/ullage"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one in C reads the manifests in a tenth of the time."""

OLDEST, NEWEST = "1.30", "1.36"
OWN = {"existingServer": "a", "existingClient": "b", "caBundle": "QQ=="}
CASES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "everything": {
        "serviceMonitor": {"enabled": True, "labels": {"team": "a"}},
        "prometheusRule": {"enabled": True, "labels": {"team": "a"}},
        "dashboard": {"enabled": True},
        "page": {"enabled": True, "from": [{"namespaceSelector": {}}]},
        "imagePullSecrets": [{"name": "x"}],
        "extraArgs": ["--node-label-selector=gpu=on"],
        "nodeSelector": {"a": "b"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "networkPolicy": {"metricsFrom": [{"namespaceSelector": {}}]},
        "scheduler": {"managedResources": [{"name": "nvidia.com/gpu", "ignoredByScheduler": True}]},
        "exporter": {
            "runtimeClassName": "nvidia",
            "resourceNames": {"nic": "example.com/nic"},
            "reserved": "cpu=1",
            "nodeSelector": {"feature.node.kubernetes.io/memory-numa": "true"},
        },
    },
    "both objects": {
        "exporter": {"objects": ["numatopology", "noderesourcetopology"], "kubelet": {"configz": True}},
    },
    "own certificates": {"tls": OWN},
    "the scheduler of the cluster": {"scheduler": {"enabled": False}},
    "little": {
        "webhook": {"enabled": False},
        "exporter": {"enabled": False},
        "crds": {"gpubindings": False, "numatopologies": False},
        "networkPolicy": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
        "priorityClassName": "",
        "claims": False,
        "preemption": False,
    },
    "bindings": {
        "bindings": {
            "scope": "on",
            "allocations": "os-framework/app-gpu-allocations",
            "admins": ["root"],
            "from": [{"namespaceSelector": {}}],
            "quotas": {
                "alice": {"cards": 2, "vram": "40Gi", "models": {"A100": {"cards": 1}}},
                "*": {"cpu": "1500m", "apps": {"chat": {"cards": 1, "models": {"RTX 4090": {"vram": "8Gi"}}}}},
            },
        },
        "cleanupStartupDelay": "10m",
    },
    "claims from words": {
        "claimsFromWords": "hami-core-gpu.project-hami.io",
        "settings": '[[kube.card_driver]]\ndriver = "hami-core-gpu.project-hami.io"\nvendor = "NVIDIA"\n',
    },
    "queues": {"queues": "all", "settings": "[queues.research]\nweight = 2\n"},
    "flags only": {"exporter": {"kubelet": {"config": ""}}},
}
BINDING = {
    "apiVersion": "gpu.bytetrade.io/v1alpha1",
    "kind": "GPUBinding",
    "spec": {
        "uuid": "GPU-1",
        "appName": "app",
        "owner": "me",
        "namespace": "me-app",
        "memory": 4096,
        "podSelector": {
            "matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "c", "operator": "In", "values": ["d"]}],
        },
    },
}
_USE = Use((PodHolding("ns", "p", "u", (Holding("c", (1,), devices=(("gpu", ("GPU-1",)),)),)),))
_MACHINE = Topology((Zone(0),), ((10,),), (Cpu(0, 0, 0, 0), Cpu(1, 0, 0, 1)), kubelet=Kubelet())
TOPOLOGY = numatopology_object(
    NodeRecord(
        "n",
        _MACHINE,
        (Gpu("GPU-1", 0, "A100", zones=(0,), bus_id="0000:01:00.0"),),
        "nvidia.com/gpu",
        {"gpu": Stock(1), "cpu": Stock(2, (0,))},
        use=_USE,
    )
)
every_case = pytest.mark.parametrize("values", CASES.values(), ids=CASES)


def render(values: dict[str, Any] | None = None, name: str = "ullage", namespace: str = "gpus") -> list[dict[str, Any]]:
    texts = helm.Chart.load(CHART).render(values or {}, name=name, namespace=namespace)
    return [document for text in texts.values() for document in yaml.load_all(text, LOADER) if document]


def of_kind(documents: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [document for document in documents if document["kind"] in kinds]


def named(documents: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = (document for document in of_kind(documents, kind) if document["metadata"]["name"] == name)
    return found


def workloads(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return of_kind(documents, "Deployment", "DaemonSet")


def config(documents: list[dict[str, Any]]) -> dict[str, Any]:
    text = named(documents, "ConfigMap", "ullage-scheduler")["data"]["config.yaml"]
    found: dict[str, Any] = yaml.safe_load(text)
    return found


@pytest.mark.parametrize(
    ("values", "version"),
    [*((values, NEWEST) for values in CASES.values()), ({}, OLDEST)],
    ids=[*CASES, "as it is, on an old one"],
)
def test_every_manifest_is_valid_for_a_cluster(values: dict[str, Any], version: str) -> None:
    for document in render(values):
        if document["kind"] in ("ServiceMonitor", "PrometheusRule"):
            continue  # of others; its schema is not Kubernetes'
        schemas.validate(document, version, strict=True)


def test_helm_finds_nothing_wrong() -> None:
    found = helm.chart.lint(CHART, strict=True)
    assert found["errors"] == []
    assert [each for each in found["messages"] if each["severity"] > 1] == []


@every_case
def test_no_rights_that_are_not_needed(values: dict[str, Any]) -> None:
    for role in of_kind(render(values), "Role", "ClusterRole"):
        for rule in role["rules"]:
            rights = {word for words in rule.values() for word in words}
            if rule["resources"] == ["gpubindings"]:
                rights -= {"delete"}  # they are made from the ledger, and go with their rows
            assert not any("*" in word for word in rights), role
            assert not rights & {"secrets", "pods/exec", "serviceaccounts", "escalate", "impersonate", "delete"}, role


@pytest.mark.parametrize(
    ("case", "name", "written"),
    [
        ("as it is", "ullage-exporter", [["numatopologies"]]),
        ("both objects", "ullage-exporter", [["numatopologies"], ["noderesourcetopologies"]]),
        (
            "as it is",
            "ullage",
            [
                ["pods"],
                ["pods/binding", "events"],
                ["pods/eviction"],
                ["resourceclaims"],
                ["resourceclaims/status", "resourceclaims/binding"],
            ],
        ),
        ("little", "ullage", [["pods"], ["pods/binding", "events"]]),
        (
            "bindings",
            "ullage",
            [
                ["pods"],
                ["pods/binding", "events"],
                ["gpubindings"],
                ["deployments", "statefulsets"],
                ["tokenreviews"],
                ["nodes"],
                ["pods/eviction"],
                ["resourceclaims"],
                ["resourceclaims/status", "resourceclaims/binding"],
            ],
        ),
    ],
)
def test_cluster_wide_write_rights_are_for_single_kinds(case: str, name: str, written: list[list[str]]) -> None:
    role = named(render(CASES[case]), "ClusterRole", name)
    assert [rule["resources"] for rule in role["rules"] if set(rule["verbs"]) - {"get", "list", "watch"}] == written


@pytest.mark.parametrize(("case", "creates"), [("as it is", False), ("claims from words", True)])
def test_claims_are_created_only_where_words_are_turned_into_them(case: str, creates: bool) -> None:
    role = named(render(CASES[case]), "ClusterRole", "ullage")
    (rule,) = (rule for rule in role["rules"] if rule["resources"] == ["resourceclaims"])
    assert ("create" in rule["verbs"]) is creates


@pytest.mark.parametrize("queues", ["named", "all"])
def test_groups_of_pods_are_read_only_where_pods_wait_for_their_turn(tmp_path: Path, queues: str) -> None:
    documents = render({"queues": queues, "settings": "[queues.research]\nweight = 2\n"})

    def of_groups(documents: list[dict[str, Any]]) -> list[tuple[list[str], list[str]]]:
        rules = named(documents, "ClusterRole", "ullage")["rules"]
        return [(rule["apiGroups"], rule["verbs"]) for rule in rules if rule["resources"] == ["podgroups"]]

    groups = ["scheduling.k8s.io", "scheduling.x-k8s.io", "scheduling.volcano.sh", "scheduling.run.ai"]
    assert of_groups(documents) == [(groups, ["list", "watch"])]
    assert of_groups(render()) == []
    file = tmp_path / "ullage.toml"
    file.write_text(named(documents, "ConfigMap", "ullage")["data"]["ullage.toml"])
    read = read_settings(file)
    assert read.kube.queues == queues
    assert [(queue.name, queue.weight) for queue in read.share_tree()] == [("research", 2)]


def test_the_extender_may_patch_nodes_only_with_hamis_plugin() -> None:
    def on_nodes(values: dict[str, Any]) -> set[str]:
        rules = named(render(values), "ClusterRole", "ullage")["rules"]
        return {verb for rule in rules if "nodes" in rule["resources"] for verb in rule["verbs"]}

    assert on_nodes({}) == {"list", "watch"}
    assert on_nodes({"hamiDevicePlugin": True}) == {"list", "watch", "patch"}


@every_case
def test_containers_may_do_as_little_as_possible(values: dict[str, Any]) -> None:
    for workload in workloads(render(values)):
        pod = workload["spec"]["template"]["spec"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        root = workload["kind"] == "DaemonSet"  # the kubelet's sockets are root's
        assert pod["securityContext"].get("runAsNonRoot", False) is not root
        assert not any(pod.get(word) for word in ("hostNetwork", "hostPID", "hostIPC"))
        assert pod["schedulerName"] == "default-scheduler"
        for container in pod["containers"]:
            own = container["securityContext"]
            assert own["readOnlyRootFilesystem"] is True
            assert own["allowPrivilegeEscalation"] is False
            assert own["capabilities"] == {"drop": ["ALL"]}
            assert "privileged" not in own
            assert container["resources"]["limits"]["memory"]
        mounts = {mount["name"]: mount for container in pod["containers"] for mount in container["volumeMounts"]}
        for volume in pod["volumes"]:
            if "hostPath" in volume:
                assert root
                assert mounts[volume["name"]]["readOnly"] is True
                assert volume["hostPath"]["path"] not in ("/", "/var/lib/kubelet")
        assert set(mounts) == {volume["name"] for volume in pod["volumes"]}


def test_files_of_the_run_time_are_on_volumes() -> None:
    (container,) = named(render(), "Deployment", "ullage")["spec"]["template"]["spec"]["containers"]
    assert {"name": "NUMBA_CACHE_DIR", "value": "/cache"} in container["env"]
    assert {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")} == {
        "/cache",
        "/tmp",
    }


@every_case
@pytest.mark.parametrize("namespace", ["gpus", "kube-system"])
def test_a_cluster_can_start_without_its_webhook(values: dict[str, Any], namespace: str) -> None:
    found = of_kind(
        render(values, namespace=namespace), "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
    )
    assert bool(found) is values.get("webhook", {}).get("enabled", True)
    for hook in (hook for each in found for hook in each["webhooks"]):
        outside = next(
            rule
            for rule in hook["namespaceSelector"]["matchExpressions"]
            if rule["key"] == "kubernetes.io/metadata.name"
        )
        assert outside["operator"] == "NotIn"
        assert "objectSelector" not in hook, "whoever may label a pod could send it past the webhook"
        assert {"kube-system", namespace} <= set(outside["values"])
        assert hook["sideEffects"] == "None"
        assert hook["timeoutSeconds"] <= 5
        asked = [(rule["operations"], rule["resources"]) for rule in hook["rules"]]
        created = (["CREATE"], ["pods"])
        changed = (["UPDATE"], ["pods", "pods/status"])
        assert asked == [changed if hook["name"] == "results.ullage.io" else created]
        assert len(hook["matchConditions"]) == (2 if hook["name"] == "results.ullage.io" else 1)
        assert hook["clientConfig"]["caBundle"]


def test_annotations_of_a_bind_are_protected_while_the_pod_lives() -> None:
    (found,) = of_kind(render(), "ValidatingWebhookConfiguration")
    hook = next(each for each in found["webhooks"] if each["name"] == "results.ullage.io")
    who, what = (condition["expression"] for condition in hook["matchConditions"])
    own = "system:serviceaccount:gpus:ullage"
    assert who == f'request.userInfo.username != "{own}"'
    assert f'own_user = "{own}"' in named(render(), "ConfigMap", "ullage")["data"]["ullage.toml"]
    assert all(f'"{name}"' in what for name in OUTPUT)
    assert '"ullage.io/"' in what
    assert '"vgpu-time"' not in what, "its writers are not known"
    keys = PodSettings().annotations | PodSettings().labels
    names = {key.removeprefix("ullage.io/").removeprefix("tensor-fusion.ai/") for key in keys}
    assert {name for name in names if f'"{name}"' not in what} == set()
    assert what.count("(") == what.count(")")


def test_the_webhook_is_asked_about_every_annotation_that_names_cards() -> None:
    """Else a pod that requests nothing could be created with cards, past the webhook."""
    begins = yaml.safe_load((CHART / "values.yaml").read_text())["webhook"]["annotationPrefixes"]
    assert all(key.startswith(tuple(begins)) for key in (*node_keys(FAMILIES), *card_records(FAMILIES)))


def test_before_a_pod_has_a_node_all_annotations_that_name_its_cards_are_protected() -> None:
    (policy,) = of_kind(render(), "ValidatingAdmissionPolicy")
    what = policy["spec"]["matchConditions"][1]["expression"]
    assert all(f'"{key}"' in what for key in (*node_keys(FAMILIES), *card_records(FAMILIES)))
    assert not of_kind(render({"webhook": {"enabled": False}}), "ValidatingAdmissionPolicy")


def test_annotations_for_hamis_plugin_are_protected_if_its_users_are_known(tmp_path: Path) -> None:
    documents = render({"hamiUsers": ["plugin"]})
    (found,) = of_kind(documents, "ValidatingWebhookConfiguration")
    hook = next(each for each in found["webhooks"] if each["name"] == "results.ullage.io")
    what = hook["matchConditions"][1]["expression"]
    assert 'request.userInfo.username in ["plugin"]' in what
    assert all(f'"{key}"' in what for key in result_keys(FAMILIES))
    file = tmp_path / "ullage.toml"
    file.write_text(named(documents, "ConfigMap", "ullage")["data"]["ullage.toml"])
    assert read_settings(file).kube.hami_users == ("plugin",)


@every_case
def test_the_scheduler_falls_into_no_trap(values: dict[str, Any]) -> None:
    documents = render(values)
    scheduler = config(documents)
    assert scheduler["percentageOfNodesToScore"] == 100
    assert [profile["schedulerName"] for profile in scheduler["profiles"]] == ["ullage"]
    (extender,) = scheduler["extenders"]
    assert extender["nodeCacheCapable"] is True
    assert extender["ignorable"] is False
    assert extender["enableHTTPS"] is True
    assert set(extender["tlsConfig"]) == {"caFile", "certFile", "keyFile"}
    verbs = {extender[f"{verb}Verb"] for verb in ("filter", "prioritize", "preempt", "bind")}
    assert verbs == {"filter", "prioritize", "preempt", "bind"}
    service = named(documents, "Service", "ullage")
    assert extender["urlPrefix"] == "https://ullage.gpus.svc:8080"
    assert 8080 in [port["port"] for port in service["spec"]["ports"]]
    # Two that elect by one lease would take it from each other.
    assert scheduler["leaderElection"]["resourceName"] not in ("kube-scheduler", "ullage")


@every_case
def test_selectors_select_only_their_own_pods(values: dict[str, Any]) -> None:
    documents = render(values)
    pods = {each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"] for each in workloads(documents)}

    def selected(labels: dict[str, str]) -> list[str]:
        return [name for name, own in pods.items() if labels.items() <= own.items()]

    for workload in workloads(documents):
        name = workload["metadata"]["name"]
        assert selected(workload["spec"]["selector"]["matchLabels"]) == [name]
    for each in of_kind(documents, "Service"):
        of_all = {name: value for name, value in each["spec"]["selector"].items() if name != LEADER}
        assert selected(of_all) == [each["metadata"]["name"].removesuffix("-webhook")]
    for each in of_kind(documents, "PodDisruptionBudget"):
        assert selected(each["spec"]["selector"]["matchLabels"]) == [each["metadata"]["name"]]
    for workload in workloads(documents):
        pod = workload["spec"]["template"]["spec"]
        named(documents, "ServiceAccount", pod["serviceAccountName"])


def test_two_replicas_run_apart_and_leave_one_at_a_time() -> None:
    documents = render()
    deployment = named(documents, "Deployment", "ullage")
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert named(documents, "PodDisruptionBudget", "ullage")["spec"]["maxUnavailable"] == 1
    pod = deployment["spec"]["template"]
    (apart,) = pod["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert apart["podAffinityTerm"]["labelSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    chosen = render({"affinity": {"nodeAffinity": {}}})
    assert named(chosen, "Deployment", "ullage")["spec"]["template"]["spec"]["affinity"] == {"nodeAffinity": {}}


def test_only_the_leader_places_pods_and_every_replica_answers_the_webhook() -> None:
    documents = render()
    leader, every = named(documents, "Service", "ullage"), named(documents, "Service", "ullage-webhook")
    assert leader["spec"]["selector"][LEADER] == "true"
    assert LEADER not in every["spec"]["selector"]
    assert {port["name"] for port in every["spec"]["ports"]} == {"webhook", "metrics"}
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for configuration in of_kind(documents, kind):
            for hook in configuration["webhooks"]:
                assert hook["clientConfig"]["service"]["name"] == "ullage-webhook"
    container = named(documents, "Deployment", "ullage")["spec"]["template"]["spec"]["containers"][0]
    variables = {each["name"]: each for each in container["env"]}
    assert variables[CONTAINER]["value"] == container["name"]
    paths = {name: variables[name]["valueFrom"]["fieldRef"]["fieldPath"] for name in (POD, NAMESPACE, UID)}
    assert paths == {POD: "metadata.name", NAMESPACE: "metadata.namespace", UID: "metadata.uid"}
    assert container["readinessProbe"]["httpGet"]["path"] == "/followz"


def test_the_page_is_served_by_the_leader_where_it_is_wanted() -> None:
    def ports(documents: list[dict[str, Any]]) -> list[set[str]]:
        container = named(documents, "Deployment", "ullage")["spec"]["template"]["spec"]["containers"][0]
        services = (named(documents, "Service", name)["spec"] for name in ("ullage", "ullage-webhook"))
        policy = named(documents, "NetworkPolicy", "ullage-extender")["spec"]
        opened = {str(port["port"]) for rule in policy["ingress"] for port in rule["ports"]}
        return [opened, *({port["name"] for port in each["ports"]} for each in (container, *services))]

    usual, shown = ports(render()), ports(render({"page": {"enabled": True}}))
    assert [more - less for more, less in zip(shown, usual, strict=True)] == [{"9396"}, {"page"}, {"page"}, set()]
    args = named(render(), "Deployment", "ullage")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert not any(word.startswith("--page") for word in args)


def test_certificates_say_their_names_so_that_an_upgrade_makes_them_again() -> None:
    """A Secret of a chart that knew fewer names is not kept, and who read its authority at the start begins again."""
    documents = render()
    secret = named(documents, "Secret", "ullage-tls")
    names = secret["metadata"]["annotations"]["ullage.io/certificate-names"].split(",")
    certificate = load_pem_x509_certificate(base64.b64decode(secret["data"]["tls.crt"]))
    found = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    assert found.get_values_for_type(DNSName) == names
    for hook in of_kind(documents, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for each in hook["webhooks"]:
            service = each["clientConfig"]["service"]
            assert f"{service['name']}.{service['namespace']}.svc" in names
    for name in ("ullage", "ullage-scheduler"):
        notes = named(documents, "Deployment", name)["spec"]["template"]["metadata"]["annotations"]
        until = secret["metadata"]["annotations"]["ullage.io/certificates-until"]
        written = f"{','.join(names)} {until}"
        assert notes["checksum/certificates"] == hashlib.sha256(written.encode()).hexdigest()


@pytest.mark.parametrize("days", [30, 3650])
def test_certificates_are_valid_for_the_configured_days(days: int) -> None:
    secret = named(render({"tls": {"validDays": days}}), "Secret", "ullage-tls")
    certificate = load_pem_x509_certificate(base64.b64decode(secret["data"]["tls.crt"]))
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc == timedelta(days=days)
    until = date.fromisoformat(secret["metadata"]["annotations"]["ullage.io/certificates-until"])
    assert until == certificate.not_valid_after_utc.date()


def test_a_shorter_lease_is_that_of_the_extender_and_of_its_scheduler() -> None:
    documents = render({"leaseSeconds": 6})
    assert "lease_s = 6" in named(documents, "ConfigMap", "ullage")["data"]["ullage.toml"]
    leading = config(documents)["leaderElection"]
    assert (leading["leaseDuration"], leading["renewDeadline"], leading["retryPeriod"]) == ("6s", "4000ms", "800ms")
    pods = [named(each, "Deployment", "ullage-scheduler")["spec"]["template"] for each in (documents, render())]
    first, usual = (pod["metadata"]["annotations"]["checksum/values"] for pod in pods)
    assert first != usual, "a scheduler that runs reads it by a restart"


def test_pools_of_cards_are_settings_that_are_read(tmp_path: Path) -> None:
    pools = [{"name": "large", "labels": {"example.com/kind": "big"}, "models": ["NVIDIA H100"]}, {"name": "rest"}]
    file = tmp_path / "ullage.toml"
    file.write_text(named(render({"cardPools": pools}), "ConfigMap", "ullage")["data"]["ullage.toml"])
    assert read_settings(file).kube.pools == (
        PoolRule("large", {"example.com/kind": "big"}, ("NVIDIA H100",)),
        PoolRule("rest"),
    )


def test_a_terminating_replica_serves_until_no_requests_arrive() -> None:
    pod = named(render(), "Deployment", "ullage")["spec"]["template"]["spec"]
    waits = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    answers_the_rest_and_lets_go = DRAIN_S + 2 * KubeTimeouts().answer_s
    assert 0 < waits <= pod["terminationGracePeriodSeconds"] - answers_the_rest_and_lets_go


def test_definitions_stay_after_an_uninstall() -> None:
    definitions = of_kind(render(), "CustomResourceDefinition")
    assert {each["metadata"]["name"] for each in definitions} == {
        "gpubindings.gpu.bytetrade.io",
        "numatopologies.nodeinfo.volcano.sh",
    }
    for each in definitions:
        assert each["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        assert each["spec"]["scope"] == "Cluster"


def kept(schema: dict[str, Any], value: object) -> object:
    """Return a value as an API server stores it: without fields that the definition does not name."""
    if isinstance(value, dict):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties")
        named = {key: known.get(key, rest) for key in value}
        return {key: kept(inner, value[key]) for key, inner in named.items() if inner is not None}
    return [kept(schema["items"], each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("definition", "written"),
    [
        ("numatopologies.nodeinfo.volcano.sh", TOPOLOGY),
        ("gpubindings.gpu.bytetrade.io", BINDING),
    ],
)
def test_definitions_hold_all_that_is_written(definition: str, written: dict[str, Any]) -> None:
    spec = named(render(), "CustomResourceDefinition", definition)["spec"]
    assert written["kind"] == spec["names"]["kind"]
    assert written["apiVersion"] == f"{spec['group']}/{spec['versions'][0]['name']}"
    schema = spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    jsonschema.validate(written["spec"], schema)
    assert kept(schema, written["spec"]) == written["spec"]


@every_case
def test_the_options_of_its_programs_exist(values: dict[str, Any]) -> None:
    for workload in workloads(render(values)):
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        words = container.get("args")
        if words is not None:  # kube-scheduler has a command
            build_parser(words[0]).parse_args(words)


@pytest.mark.parametrize(
    ("values", "topologies", "lease"),
    [
        ({}, True, "ullage"),
        (
            {
                "topologies": False,
                "claims": False,
                "nodeResourceTopologies": "off",
                "alignAll": True,
                "pessimisticZones": True,
                "settings": 'lease = "other"\n',
            },
            False,
            "other",
        ),
    ],
)
def test_its_settings_are_read(tmp_path: Path, values: dict[str, Any], topologies: bool, lease: str) -> None:
    file = tmp_path / "ullage.toml"
    file.write_text(named(render(values), "ConfigMap", "ullage")["data"]["ullage.toml"])
    read = read_settings(file).kube
    assert (read.topologies, read.claims, read.lease) == (topologies, topologies, lease)
    assert read.align_all is values.get("alignAll", False)
    assert read.pessimistic_zones is values.get("pessimisticZones", False)
    assert read.noderesourcetopologies == values.get("nodeResourceTopologies", "second")


def test_settings_of_bindings_are_read(tmp_path: Path) -> None:
    file = tmp_path / "ullage.toml"
    file.write_text(named(render(CASES["bindings"]), "ConfigMap", "ullage")["data"]["ullage.toml"])
    assert "bindings" not in str(named(render(), "ConfigMap", "ullage")["data"])
    read = read_settings(file).kube.bindings
    assert (read.scope, read.allocations, read.admins) == ("on", "os-framework/app-gpu-allocations", ("root",))
    chat = AppQuota(1, models={"RTX 4090": CardQuota(vram_bytes=8 * 2**30)})
    assert read.owner_quotas == {
        "alice": OwnerQuota(2, 40 * 2**30, models={"A100": CardQuota(1)}),
        "*": OwnerQuota(cpu_milli=1500, apps={"chat": chat}),
    }


def test_two_releases_share_nothing_but_definitions() -> None:
    def names(name: str, namespace: str) -> set[tuple[str, str, str]]:
        documents = render({"crds": {"gpubindings": False, "numatopologies": False}}, name, namespace)
        return {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in documents}

    assert not names("one", "a") & names("two", "b")


@pytest.mark.parametrize(
    "values",
    [
        {"replicas": 0},
        {"unknown": 1},
        {"schedulerName": "default-scheduler"},
        {"webhook": {"timeoutSeconds": 30}},
        {"webhook": {"failurePolicy": "Perhaps"}},
        {"queues": True},
        {"bindings": {"quotas": {"alice": {"gpus": 1}}}},
        {"bindings": {"quotas": {"alice": {"vram": "40 Gi"}}}},
        {"bindings": {"quotas": {"alice": {"models": {"A100": {"cpu": 1}}}}}},
        {"bindings": {"quotas": {"alice": {"apps": {"chat": {"cards": -1}}}}}},
        {"tls": {"existingServer": "a"}},
        {"tls": {"existingServer": "a", "existingClient": "b"}},
        {"exporter": {"checkPeriod": "often"}},
        {"image": {"repository": "ullage:latest"}},
        {"exporter": {"kubelet": {"directory": "var/lib"}}},
    ],
    ids=str,
)
def test_impossible_values_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(helm.HelmError):
        checked(values)


def checked(values: dict[str, Any]) -> None:
    """Act as an install: check the values against their schema, then render the templates."""
    chart = helm.Chart.load(CHART)
    chart.validate_schema(chart.merge_values(values))
    chart.render(values, name="ullage", namespace="gpus")


def test_no_registry_is_named() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for image in (values["image"], values["scheduler"]["image"]):
        assert "/" not in image["repository"]


def test_resources_that_no_node_has_are_ignored_by_the_scheduler() -> None:
    (profile,) = config(render())["profiles"]
    (fit,) = (each["args"] for each in profile["pluginConfig"] if each["name"] == "NodeResourcesFit")
    counted = {name for family in FAMILIES if family.register.format != "capacity" for name in family.amounts}
    assert set(fit["ignoredResources"]) == counted
