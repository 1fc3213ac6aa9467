"""Pods in the words of a device plugin, whose requests are turned into claims: the webhook, the claims, the cards."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("cel_expr_python", reason="cel-expr-python is in the lock, and not installed here")

from tests.kube.api_server import ApiServer
from tests.kube.claims import a_node, allocated, delete, gated, get
from tests.kube.conftest import until
from tests.kube.rules import Refused
from tests.kube.test_front import put, running
from tests.kube.test_webhook import admitted, answered, refused
from tests.kube.vendor_nodes import a_pod as shared_amounts
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.webhook.webhook import AdmissionSettings, Webhook
from ullage.model.card_driver import CardDriver
from ullage.model.error import InvalidRequest
from ullage.wire.dra.made_claim import AskedClaim, claim_body, decode_asked

CLASS = "hami-core-gpu.project-hami.io"
KEY = "ullage.io/asked-claims"
SETTINGS = AdmissionSettings(claims_gate="ullage.io/claims", claims_from_words=CLASS)
TURNING = Webhook(SETTINGS)
GPU, MIB, CORES, PERCENT = (f"nvidia.com/{name}" for name in ("gpu", "gpumem", "gpucores", "gpumem-percentage"))
OWNER = {"namespace": "default", "name": "p", "uid": "u"}


def a_pod(name: str, *limits: dict[str, int | str], **more: Any) -> dict[str, Any]:
    """A pod as an API server decodes it: its limits and its requests are different objects."""
    found: dict[str, Any] = json.loads(json.dumps(shared_amounts(name, *limits, **more)))
    return found


def asked_by(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return list(json.loads(pod["metadata"]["annotations"][KEY]).values())


def test_each_container_with_cards_refers_to_a_claim_of_its_own() -> None:
    words = {"nvidia.com/use-gputype": "A100,H100", "nvidia.com/nouse-gpuuuid": "GPU-9"}
    pod = a_pod("p", {GPU: 2, MIB: 8000, CORES: 30, "cpu": 4}, {"cpu": 1}, {GPU: 1}, annotations=words)
    found = admitted(pod, TURNING)
    first, second, third = found["spec"]["containers"]
    names = [each["name"] for each in found["spec"]["resourceClaims"]]
    assert [each["resourceClaimName"] for each in found["spec"]["resourceClaims"]] == names
    assert first["resources"] == {"limits": {"cpu": "4"}, "requests": {"cpu": "4"}, "claims": [{"name": names[0]}]}
    assert "claims" not in second["resources"]
    assert third["resources"] == {"limits": {}, "requests": {}, "claims": [{"name": names[1]}]}
    assert found["spec"]["schedulingGates"] == [{"name": "ullage.io/claims"}]
    chosen = {"models": ["A100", "H100"], "not_uuids": ["GPU-9"]}
    assert asked_by(found) == [{"count": 2, "memory_mib": 8000, "cores": 30, **chosen}, {"cores": 100, **chosen}]
    assert "patch" not in answered(found, TURNING), "a second call changes nothing"


def test_a_claim_asks_for_what_its_container_asked_for() -> None:
    asked = AskedClaim(2, 8000, 30, models=("A100",), not_models=("PCIe",), uuids=("GPU-1",), not_uuids=("GPU-2",))
    body = claim_body("c", asked, CLASS, OWNER)
    (request,) = body["spec"]["devices"]["requests"]
    exactly = request["exactly"]
    assert (exactly["deviceClassName"], exactly["count"]) == (CLASS, 2)
    assert exactly["capacity"] == {"requests": {"memory": "8000Mi", "cores": "30"}}
    device = f'device.attributes["{CLASS}"]'
    assert [each["cel"]["expression"] for each in exactly["selectors"]] == [
        f'["a100"].exists(word, {device}.productName.lowerAscii().contains(word))',
        f'!["pcie"].exists(word, {device}.productName.lowerAscii().contains(word))',
        f'{device}.uuid in ["GPU-1"]',
        f'!({device}.uuid in ["GPU-2"])',
    ]
    assert body["metadata"]["ownerReferences"][0]["uid"] == "u"
    plain = claim_body("c", AskedClaim(1), CLASS, OWNER)["spec"]["devices"]["requests"][0]["exactly"]
    assert "capacity" not in plain
    assert "selectors" not in plain


@pytest.mark.parametrize(
    ("limits", "annotations", "named"),
    [
        ({GPU: 1, PERCENT: 50}, {}, "write nvidia.com/gpumem in MiB"),
        ({GPU: 1, MIB: 1000}, {"nvidia.com/vgpu-mode": "mig"}, "nvidia.com/vgpu-mode"),
    ],
)
def test_what_a_claim_cannot_ask_for_is_refused(
    limits: dict[str, int | str], annotations: dict[str, str], named: str
) -> None:
    assert named in refused(a_pod("p", limits, annotations=annotations), TURNING)


@pytest.mark.parametrize(
    "pod",
    [
        a_pod("p", {GPU: 0}),
        a_pod("p", {"amd.com/gpu": 1}),
        a_pod("p", {}, annotations={"ullage.io/gpu-count": "1"}),
        a_pod("p", {GPU: 1}, schedulerName="another"),
    ],
    ids=["none", "another vendor", "our words", "another scheduler"],
)
def test_others_keep_their_words(pod: dict[str, Any]) -> None:
    found = admitted(pod, TURNING)
    assert "resourceClaims" not in found["spec"]
    assert KEY not in found["metadata"]["annotations"]


def test_an_annotation_that_claims_more_is_not_read() -> None:
    for text in (
        '{"c": {"admin": true}}',
        '{"c": {"count": 0}}',
        "{",
        json.dumps({str(number): {} for number in range(65)}),
    ):
        with pytest.raises(InvalidRequest, match=KEY):
            decode_asked(text, KEY)


# --- through the front ---


def shared_cards(node: str, count: int) -> dict[str, Any]:
    """Cards of a driver that lets several claims have parts of one."""
    cores = {"value": "100", "requestPolicy": {"default": "100", "validRange": {"min": "0", "max": "100", "step": "1"}}}
    memory = {"value": "80Gi", "requestPolicy": {"default": "80Gi", "validRange": {"min": "1Mi", "max": "80Gi"}}}
    devices = [
        {
            "name": f"gpu-{number}",
            "allowMultipleAllocations": True,
            "attributes": {
                "type": {"string": "hami-gpu"},
                "uuid": {"string": f"GPU-{node}-{number}"},
                "productName": {"string": "NVIDIA A100-SXM4-80GB"},
            },
            "capacity": {"cores": cores, "memory": memory},
        }
        for number in range(count)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": f"{node}-cards"},
        "spec": {"driver": CLASS, "nodeName": node, "pool": pool, "devices": devices},
    }


def exists(server: ApiServer, claim: str) -> bool:
    try:
        return bool(get(server, "resourceclaims", claim))
    except Refused:
        return False


@pytest.mark.timeout(900)
@pytest.mark.anyio
async def test_a_pod_in_words_gets_its_claims_and_their_cards(server: ApiServer, api: HttpKubeApi) -> None:
    selector = {"cel": {"expression": f"device.driver == '{CLASS}'"}}
    put(server, "deviceclasses", {"metadata": {"name": CLASS}, "spec": {"selectors": [selector]}})
    put(server, "nodes", a_node("a"))
    put(server, "resourceslices", shared_cards("a", 1))
    options: dict[str, Any] = {"card_drivers": [CardDriver(CLASS, card="hami-gpu")], "claims_from_words": CLASS}

    def created(name: str, **limits: int) -> str:
        words: dict[str, int | str] = {f"nvidia.com/{key}": amount for key, amount in limits.items()}
        (pod,) = put(server, "pods", admitted(a_pod(name, words), Webhook(SETTINGS)))
        return str(pod["spec"]["resourceClaims"][0]["resourceClaimName"])

    half = created("half", gpu=1, gpumem=40000, gpucores=50)
    async with running(server, api, **options):
        await until(lambda: not gated(server, "half"), "its claim is made and allocated")
        assert allocated(server, half) == ["a/gpu-0"]
        assert get(server, "resourceclaims", half)["metadata"]["ownerReferences"][0]["name"] == "half"
    async with running(server, api, **options):  # the leader was restarted
        rest = created("rest", gpu=1, gpumem=40000, gpucores=50)
        await until(lambda: not gated(server, "rest"), "the other half is for it")
        assert allocated(server, rest) == ["a/gpu-0"]
        over = created("over", gpu=1, gpumem=1000, gpucores=1)
        await until(lambda: exists(server, over), "its claim is made")
        assert allocated(server, over) == []
        delete(server, "rest")
        await until(lambda: not gated(server, "over"), "there is room for it now")
        assert allocated(server, over) == ["a/gpu-0"]
