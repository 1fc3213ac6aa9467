"""`/compute-resources` and `/gpus` over HTTP: names, envelopes, limits and errors as clients know them."""

import asyncio
import json
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.testclient import TestClient

from tests.bindings import ALONE, GIB, MIB, SLICED, MemoryBindings, a_card, a_node, a_row, an_app, ask
from tests.wire.topology.hostile import shaped
from ullage.kube.bindings.compute_resources import compute_resources
from ullage.model.compute import CPU, AppState, CardQuota, OwnerQuota
from ullage.model.error import Forbidden, Unavailable
from ullage.service.bindings import Bindings
from ullage.service.bindings_snapshot import Caller
from ullage.service.pages import written

ROOT = "/app-service/v1"
RESOURCES = f"{ROOT}/compute-resources"
COMFY = f"{ROOT}/apps/comfyui"
BOUND = f"{COMFY}/compute-resources/bindings"
SWITCH = f"{RESOURCES}/nodes/n1/devices/d1/support-type"
ADMIN = {"x-user": "root"}
WHOLE, CARD = a_card("n1", "d0", share=ALONE), a_card(share=SLICED)
STOPPED = an_app(state=AppState.STOPPED)
CHOICE = [{"nodeName": "n1", "deviceId": "d1", "memory": 8000 * MIB}]


def caller_of(request):
    name = request.headers.get("x-user", "alice")
    if name == "nobody":
        raise Forbidden("who is there?")
    return Caller(name, is_admin=name == "root")


def hold(*apps):
    return MemoryBindings((a_node(WHOLE, CARD),)).have(*(apps or (STOPPED,)))


def client_of(port):
    return TestClient(compute_resources(Bindings(port), caller_of), base_url="http://localhost")


@pytest.fixture
def port():
    return hold()


@pytest.fixture
def client(port):
    return client_of(port)


def data(answer, code=200):
    assert (answer.status_code, answer.json()["code"]) == (200, code), answer.text
    return answer.json()["data"]


# --- resources ---


def test_44_cards_say_what_is_left_in_bytes(client, port):
    port.bind(a_row(WHOLE, "other"), a_row(CARD, mib=6000, spec=ask(6000)), a_row(CARD, "third", mib=1000))
    answer = client.get(RESOURCES)
    assert answer.headers["etag"] == '"0"'
    (node,) = data(answer)
    assert {key: node[key] for key in node if key != "devices"} == {
        "nodeName": "n1",
        "gpuType": "nvidia",
        "gpuTypes": ["nvidia"],
        "health": "yes",
        "state": "ready",
    }
    whole, sliced = node["devices"]
    assert (whole["available"], sliced["available"]) == (0, 9000 * MIB)
    assert {key: sliced[key] for key in sliced if key not in ("bindings", "available")} == {
        "id": "d1",
        "nodeName": "n1",
        "mode": "nvidia",
        "cardModel": "RTX",
        "memory": 16_000 * MIB,
        "health": "yes",
        "supportType": "MemorySlice",
        "availableSupportTypes": ["TimeSlice", "MemorySlice", "Exclusive"],
        "state": "bound",
    }
    assert sliced["bindings"][0] == {
        "appId": "id-comfyui",
        "appName": "comfyui",
        "owner": "alice",
        "mode": "nvidia",
        "nodeName": "n1",
        "deviceId": "d1",
        "memory": 6000 * MIB,
        "spec": {
            "mode": "nvidia",
            "requiredCpu": 1000,
            "requiredGpu": 6000 * MIB,
            "limitedGpu": 0,
            "requiredMemory": GIB,
            "limitedMemory": 0,
            "requiredDisk": 0,
            "supportMultiCards": False,
            "supportMultiNodes": False,
        },
    }


def test_types_and_problems_are_listed(client, port):
    port.bind(a_row(a_card(device="lost")))
    assert data(client.get(f"{ROOT}/gpu/types")) == ["nvidia"]
    assert data(client.get(f"{RESOURCES}/problems")) == [{"item": "comfyui of alice on n1/lost", "reason": "card-gone"}]


def test_an_unknown_caller_gets_nothing(client):
    answer = client.get(RESOURCES, headers={"x-user": "nobody"})
    assert (answer.status_code, answer.headers["content-type"]) == (403, "text/plain; charset=utf-8")


@pytest.mark.parametrize("path", [RESOURCES, "/gpus"])
def test_other_requests_are_served_while_a_page_of_an_earlier_snapshot_is_written(client, port, path):
    routes = compute_resources(Bindings(port), caller_of).routes
    (answer,) = (route.endpoint for route in routes if route.path == path and "GET" in route.methods)
    before = client.get(path).content

    async def ask():
        held = threading.Event()
        earlier = asyncio.ensure_future(written(lambda: held.wait(60)))
        scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b"", "path_params": {}}
        page = asyncio.ensure_future(answer(Request(scope)))
        await asyncio.sleep(0)
        assert not page.done(), "the event loop has its turn before the page is written"
        port.bind(a_row(WHOLE, "other"))
        held.set()
        assert await earlier
        return (await page).body

    assert asyncio.run(ask()) == before
    assert client.get(path).content != before


# --- bindings ---


def test_45_validate_stores_nothing(client, port):
    before = port.state
    missing = data(client.post(f"{BOUND}/validate", json={}), 422)
    assert (missing["type"], set(missing["Data"])) == ("computeBindingRequired", {"availability"})
    good = data(client.post(f"{BOUND}/validate", json={"computeBinding": CHOICE}))
    assert (good["status"], good["validation"]) == ("valid", {"ok": True, "code": "", "reason": "valid"})
    assert [row["memory"] for row in good["allocations"]] == [8000 * MIB]
    assert good["availability"]["scope"] == "card"
    assert good["availability"]["nodes"][0]["devices"][1] == {
        "nodeName": "n1",
        "deviceId": "d1",
        "cardModel": "RTX",
        "supportType": "MemorySlice",
        "capacity": 16_000 * MIB,
        "available": 16_000 * MIB,
        "operable": True,
        "bindings": [],
        "fitLevel": "limit",
    }
    assert port.state == before


@pytest.mark.parametrize(
    ("choice", "code"),
    [
        ([{**CHOICE[0], "nodeName": "n9"}], "node-not-found:n9"),
        ([{**CHOICE[0], "deviceId": "d9"}], "device-not-found:d9"),
        (CHOICE * 2, "duplicate-selection:n1/d1"),
        ([*CHOICE, {"nodeName": "n1", "deviceId": "d0"}], "multi-card-not-supported"),
        ([{"nodeName": "n1", "deviceId": "d1"}], "memory-required:d1"),
    ],
)
def test_46_47_a_bad_choice_is_refused_with_its_code(client, port, choice, code):
    for path in (f"{BOUND}/validate", f"{COMFY}/resume"):
        failed = data(client.post(path, json={"computeBinding": choice}), 422)
        assert failed["type"] == "computeBindingUnavailable"
        assert failed["Data"]["validation"] == {"ok": False, "code": code, "reason": "invalid"}
        assert failed["Data"]["availability"]["schedulable"]
    assert port.state.version == 0


def test_a_node_that_would_be_too_full_says_of_what(client, port):
    port.have(replace(STOPPED, requirements=(ask(memory_bytes=300 * GIB),)))
    failed = data(client.post(f"{BOUND}/validate", json={"computeBinding": CHOICE}), 422)
    pressure = failed["Data"]["validation"]["nodePressure"]
    assert (pressure["nodeName"], pressure["dimensions"][1]) == (
        "n1",
        {
            "resource": "memory",
            "required": 300 * GIB,
            "used": 0,
            "capacity": 256 * GIB,
            "available": 256 * GIB,
            "pressured": True,
        },
    )
    assert failed["Data"]["availability"]["reason"] == "no-available-node"


def test_50_resume_asks_for_a_choice_and_takes_a_good_one(client, port):
    required = data(client.post(f"{COMFY}/resume"), 422)
    assert (required["type"], required["Data"]["availability"]["schedulable"]) == ("computeBindingRequired", True)
    rows = data(client.post(f"{COMFY}/resume", json={"computeBinding": CHOICE}))
    assert rows == data(client.get(BOUND))
    assert [row["deviceId"] for row in rows] == ["d1"]
    assert port.reported == [("start", STOPPED.key)]


def test_51_an_application_can_be_suspended_twice(client):
    client.post(f"{COMFY}/resume", json={"computeBinding": CHOICE})
    answers = [client.delete(BOUND), client.delete(BOUND), client.post(f"{COMFY}/uninstall"), client.get(BOUND)]
    assert [data(answer) for answer in answers] == [[], [], [], []]
    assert data(client.get(RESOURCES))[0]["devices"][1]["bindings"][0]["state"] == "draining"


def test_53_install_takes_the_only_way_or_asks(client, port):
    port.have(an_app("comfyui", "alice", ask(0, accelerator=CPU), ask(8000), state=AppState.INSTALLING))
    asked = data(client.post(f"{COMFY}/install"), 422)
    assert asked == {
        "type": "computeModeSelect",
        "Data": [{"computeType": kind, "status": "installable"} for kind in ("cpu", "nvidia")],
    }
    assert [row["deviceId"] for row in data(client.post(f"{COMFY}/install", json={"mode": "nvidia"}))] == ["d0"]


def test_an_application_without_cards_needs_no_choice(client, port):
    port.have(replace(STOPPED, requirements=()))
    assert data(client.post(f"{BOUND}/validate", json={})) == {"status": "not-required", "allocations": []}
    assert data(client.post(f"{COMFY}/resume")) == []


def test_only_an_admin_may_act_for_other_owners(client, port):
    port.have(an_app("comfyui", "bob"))
    assert client.get(BOUND, params={"owner": "bob"}).status_code == 403
    assert client.get(BOUND, headers={"x-user": "carol"}).status_code == 404
    assert data(client.get(BOUND, params={"owner": "bob"}, headers=ADMIN)) == []


def test_versions_and_keys_are_headers(client, port):
    body = {"computeBinding": CHOICE}
    assert client.post(f"{COMFY}/resume", json=body, headers={"If-Match": '"7"'}).status_code == 412
    assert client.post(f"{COMFY}/resume", json=body, headers={"If-Match": "seven"}).status_code == 400
    headers = {"If-Match": '"0"', "Idempotency-Key": "k"}
    rows = data(client.post(f"{COMFY}/resume", json=body, headers=headers))
    assert data(client.post(f"{COMFY}/resume", json=body, headers=headers)) == rows
    assert client.delete(BOUND, headers={"Idempotency-Key": "k"}).status_code == 409


def test_an_unavailable_store_is_503(client, port):
    port.fail["commit"] = Unavailable("no store")
    answer = client.post(f"{COMFY}/resume", json={"computeBinding": CHOICE})
    assert (answer.status_code, answer.text) == (503, "unavailable: no store")


# --- support types ---


def test_48_who_may_not_switch_and_to_what(client, port):
    for headers, mode, status in (({}, "Exclusive", 403), (ADMIN, "MemoryShared", 400), (ADMIN, 3, 400)):
        assert client.put(SWITCH, json={"supportType": mode}, headers=headers).status_code == status
    lost = SWITCH.replace("d1", "d9")
    assert client.put(lost, json={"supportType": "Exclusive"}, headers=ADMIN).status_code == 404
    same = data(client.put(SWITCH, json={"supportType": "MemorySlice"}, headers=ADMIN))
    assert (same["status"], same["stoppedApps"], same["blockedApps"]) == ("unchanged", [], [])


def test_49_a_switch_lists_the_apps_that_it_stops_and_is_blocked_by_those_it_cannot(client, port):
    port.have(an_app(), an_app("other", "bob", state=AppState.UPGRADING)).bind(a_row(CARD, mib=1))
    rows = port.state
    port.bind(a_row(CARD, "other", "bob", mib=1))
    blocked = data(client.put(SWITCH, json={"supportType": "Exclusive"}, headers=ADMIN), 422)
    assert blocked["type"] == "computeDeviceSwitchBlocked"
    assert blocked["Data"]["status"] == "bound-apps-stop-blocked"
    assert blocked["Data"]["blockedApps"] == [
        {"appName": "other", "owner": "bob", "state": "upgrading", "reason": "stop-operation-not-allowed"}
    ]
    assert port.reported == []
    port.state = rows
    done = data(client.put(SWITCH, json={"supportType": "Exclusive"}, headers=ADMIN))
    assert (done["status"], done["device"]["supportType"]) == ("switched", "Exclusive")
    assert done["stoppedApps"] == [{"appName": "comfyui", "owner": "alice", "state": "running"}]


# --- preflight ---

DEMAND = {
    "id": "a",
    "application": "llm",
    "owner": "alice",
    "mode": "nvidia",
    "requiredCPU": "500m",
    "requiredGPU": "8Gi",
    "limitedGPU": "0",
    "requiredMemory": "1Gi",
    "limitedMemory": "2Gi",
    "requiredDisk": "10Gi",
    "supportMultiCards": False,
    "supportMultiNodes": False,
}


def preflight(client, *demands, **more):
    return client.post(f"{RESOURCES}/preflight", json={"demands": [DEMAND | each for each in demands]}, **more)


def test_demands_are_placed_one_after_the_other(client):
    assert data(preflight(client, {}, {"id": "b", "application": "b"})) == {"installable": True}
    third = data(preflight(client, *({"id": name, "application": name, "requiredGPU": "15Gi"} for name in "abc")))
    assert third == {"installable": False, "failedDemandId": "c", "reason": "cluster_capacity"}
    busy = data(preflight(client, {"requiredCPU": "60"}))
    assert (busy["reason"], [each["source"] for each in busy["pressure"]]) == ("cluster_pressure", ["cluster_pressure"])
    assert busy["pressure"][0]["dimensions"][0]["resource"] == "cpu"


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ([], 400),
        ([{"id": str(number)} for number in range(65)], 400),
        ([{}, {}], 400),
        ([{"owner": "bob"}], 403),
        ([{"limitedGPU": "7Gi"}], 400),
        ([{"limitedMemory": "1"}], 400),
        ([{"requiredDisk": "-1"}], 400),
        ([{"requiredCPU": 1}], 400),
        ([{"requiredCPU": ""}], 400),
        ([{"id": ""}], 400),
        ([{"id": "ä" * 129}], 400),
        ([{"application": "x" * 257}], 400),
        ([{"requiredGPU": "9" * 30}], 400),
    ],
)
def test_52_what_cannot_be_demanded(client, wrong, status):
    answer = preflight(client, *wrong)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/plain; charset=utf-8")


def test_52_bodies_have_a_mebibyte(client):
    edge = json.dumps({"demands": [DEMAND]})
    assert client.post(f"{RESOURCES}/preflight", content=edge.ljust(2**20)).status_code == 200
    assert client.post(f"{RESOURCES}/preflight", content=edge.ljust(2**20 + 1)).status_code == 413
    assert client.post(f"{RESOURCES}/preflight", content=b"x" * 2**21).status_code == 413
    missing = {key: value for key, value in DEMAND.items() if key != "requiredDisk"}
    assert client.post(f"{RESOURCES}/preflight", json={"demands": [missing]}).status_code == 400
    assert data(preflight(client, {"owner": "bob"}, headers=ADMIN))["installable"]


# --- the older routes ---


def test_the_older_list_counts_in_mib(client, port):
    port.bind(a_row(CARD, mib=6000), a_row(WHOLE, "other"))
    whole, sliced = client.get("/gpus").json()
    assert sliced == {
        "nodeName": "n1",
        "id": "d1",
        "index": 0,
        "count": 10,
        "devmem": 16_000,
        "devcore": 100,
        "type": "RTX",
        "numa": 0,
        "mode": "hami-core",
        "health": True,
        "sharemode": "1",
        "allowedShareModes": ["0", "1", "2"],
        "apps": [{"appName": "comfyui", "memory": 6000}],
        "memoryAllocated": 6000,
        "memoryAvailable": 10_000,
    }
    assert (whole["apps"], "memoryAllocated" in whole) == ([{"appName": "other"}], False)


def test_the_older_list_omits_draining_applications_but_counts_their_memory(client, port):
    port.bind(a_row(CARD, mib=6000, draining=True))
    sliced = client.get("/gpus").json()[1]
    assert (sliced["apps"], sliced["memoryAvailable"]) == ([], 10_000)


def test_54_older_routes_may_be_repeated(client, port):
    port.have(an_app())
    for _ in range(2):
        answer = client.post("/gpus/d1/assign", json={"appName": "comfyui", "memory": 8000})
        assert (answer.status_code, answer.content) == (200, b"")
    assert port.reported == [("restart", STOPPED.key)]
    assert port.state.rows[0].memory_bytes == 8000 * MIB
    for app in ("comfyui", "unknown"):
        assert client.post("/gpus/d0/unassign", json={"appName": app}).status_code == 200
        assert client.post("/gpus/d9/unassign", json={"appName": app}).status_code == 200
    assert len(port.reported) == 1


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("d1/mode", {"mode": 5}, 400),
        ("d1/mode", {"mode": True}, 400),
        ("d1/mode", {}, 400),
        ("d9/mode", {"mode": 1}, 404),
        ("d9/assign", {"appName": "comfyui"}, 404),
        ("d1/assign", {"appName": "comfyui"}, 400),
        ("d1/assign", {"appName": "comfyui", "memory": 16_001}, 409),
        ("d1/assign", {"appName": "comfyui", "memory": -1}, 400),
        ("d1/assign", {"appName": "", "memory": 1}, 400),
        ("d1/assign", {"appName": "unknown", "memory": 1}, 404),
        ("d0/assign", {"appName": "comfyui"}, 409),
    ],
)
def test_54_older_routes_refuse_in_plain_text(client, port, path, body, status):
    port.bind(a_row(WHOLE, "other"))
    answer = client.post(f"/gpus/{path}", json=body, headers=ADMIN, params={"owner": "alice"})
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/plain; charset=utf-8")
    assert port.state.version == 0


def test_modes_by_number_are_an_administrators_and_wait_for_nobody(client, port):
    port.have(an_app(state=AppState.UPGRADING)).bind(a_row(CARD, mib=1))
    assert client.post("/gpus/d1/mode", json={"mode": 0}).status_code == 403
    assert client.post("/gpus/d1/mode", json={"mode": 0}, headers=ADMIN).status_code == 409
    assert client.post("/gpus/d0/mode", json={"mode": "2"}, headers=ADMIN).status_code == 200
    assert client.get("/gpus").json()[0]["sharemode"] == "2"


def test_many_cards_are_reassigned_in_one_change(client, port):
    port.have(an_app()).bind(a_row(CARD, mib=4000))
    body = {"appName": "comfyui", "assign": [{"id": "d0"}, {"id": "d0"}], "unassign": [{"id": "d1"}, {"id": "d0"}]}
    for _ in range(2):
        assert client.put("/gpus/assignments/bulk", json=body).content == b""
    assert [row.card.device for row in port.state.rows] == ["d0"]
    assert len(port.reported) == 1


# --- bodies that nobody should send ---

KEYS = [*DEMAND, "demands", "computeBinding", "nodeName", "deviceId", "memory", "supportType", "mode", "appName"]
BULK = {"appName": "comfyui", "assign": [{"id": "d1", "memory": 1}], "unassign": [{"id": "d0"}]}
SHAPES = {
    ("POST", f"{RESOURCES}/preflight"): {"demands": [DEMAND]},
    ("POST", f"{BOUND}/validate"): {"computeBinding": CHOICE},
    ("POST", f"{COMFY}/resume"): {"computeBinding": CHOICE},
    ("POST", f"{COMFY}/install"): {"mode": "nvidia", "computeBinding": CHOICE},
    ("PUT", SWITCH): {"supportType": "Exclusive"},
    ("POST", "/gpus/d1/mode"): {"mode": 1},
    ("POST", "/gpus/d1/assign"): {"appName": "comfyui", "memory": 8000},
    ("PUT", "/gpus/assignments/bulk"): BULK,
}
bodies = st.sampled_from(sorted(SHAPES)).flatmap(
    lambda where: st.tuples(st.just(where), shaped(SHAPES[where], KEYS).map(lambda body: json.dumps(body, default=str)))
)
raw = st.tuples(st.sampled_from(sorted(SHAPES)), st.binary(max_size=40) | st.text(max_size=40))


@given(bodies | raw)
def test_no_body_breaks_anything(asked):
    (method, path), body = asked
    client = client_of(hold())
    answer = client.request(method, path, content=body, headers=ADMIN, params={"owner": "alice"})
    assert answer.status_code in (200, 400, 403, 404, 409)


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"computeBinding":' + b"[" * 5000, b"\xff", b'"\\ud800"', b"null"])
def test_broken_bodies_are_the_callers(client, body):
    assert client.post(f"{COMFY}/resume", content=body).status_code == 400


def test_long_names_are_the_callers(client):
    assert client.get(f"{ROOT}/apps/{'x' * 257}/compute-resources/bindings").status_code == 400
    assert client.get(BOUND, params={"owner": "x" * 257}).status_code == 400
    many = {"computeBinding": CHOICE * 1025}
    assert client.post(f"{COMFY}/resume", json=many).status_code == 400


# --- quotas ---


def quotas_of(port):
    model = {"RTX": CardQuota(cards=1)}
    port.facts["quotas"] = {"alice": OwnerQuota(vram_bytes=8000 * MIB, models=model), "*": OwnerQuota(cards=3)}
    return port


def test_a_refusal_by_a_quota_says_which_one_its_use_and_what_helps(client, port):
    quotas_of(port).bind(a_row(CARD, "other", mib=4000))
    check = data(client.post(f"{BOUND}/validate", json={"computeBinding": CHOICE}), 422)["Data"]["validation"]
    assert check["code"] == "owner-quota:vram"
    message = check["quota"].pop("message")
    assert check["quota"] == {
        "owner": "alice",
        "resource": "vram",
        "used": 4000 * MIB,
        "required": 8000 * MIB,
        "capacity": 8000 * MIB,
        "available": 4000 * MIB,
        "pressured": True,
        "setting": "kube.bindings.quotas.alice.vram",
    }
    assert "release a card of other, ask for at most 4000Mi" in message
    assert data(client.post(f"{COMFY}/resume", json={"computeBinding": CHOICE}), 422)["Data"]["validation"]["code"] == (
        "owner-quota:vram"
    )
    assigned = client.post("/gpus/d1/assign", json={"appName": "comfyui", "memory": 8000})
    assert (assigned.status_code, assigned.text.partition(": ")[0]) == (409, "owner-quota:vram")
    assert message in assigned.text


def test_an_owner_sees_the_usage_of_own_quotas_and_an_administrator_that_of_all(client, port):
    quotas_of(port).have(an_app("chat", "bob")).bind(a_row(CARD, mib=1000), a_row(WHOLE, "chat", "bob"))
    seen = data(client.get(f"{RESOURCES}/quotas"))
    assert [(each["resource"], each.get("cardModel"), each["used"]) for each in seen] == [
        ("vram", None, 1000 * MIB),
        ("cards", "RTX", 1),
    ]
    assert {each["owner"] for each in data(client.get(f"{RESOURCES}/quotas", headers=ADMIN))} == {"alice", "bob"}
    (bob,) = data(client.get(f"{RESOURCES}/quotas?owner=bob", headers=ADMIN))
    assert (bob["capacity"], bob["used"], bob["setting"]) == (3, 1, 'kube.bindings.quotas."*".cards')
    assert client.get(f"{RESOURCES}/quotas?owner=bob").status_code == 403


# --- states ---


def states(client):
    (node,) = data(client.get(RESOURCES))
    return node["state"], [card["state"] for card in node["devices"]]


def test_a_card_says_whether_it_is_free_bound_draining_cordoned_or_unhealthy(client, port):
    cards = [
        *(WHOLE, CARD, a_card(device="d2"), replace(a_card(device="d3"), cordoned=True)),
        *(replace(a_card(device="d4"), cordoned=True), replace(a_card(device="d5"), healthy=False)),
        *(a_card(device="d6"), replace(a_card(device="d7"), cordoned=True, partitioned=True)),
    ]
    port.nodes = (a_node(*cards),)
    port.bind(a_row(WHOLE, "other", "bob"), a_row(CARD, "left", draining=True), a_row(cards[2], share=ALONE))
    port.facts["held_cards"] = frozenset({"d4", "d5", "d6", "d7"})
    assert states(client) == (
        "ready",
        ["bound", "draining", "draining", "cordoned", "draining", "unhealthy", "bound", "cordoned"],
    )


def test_a_cordoned_node_drains_while_pods_hold_its_cards(client, port):
    port.nodes = (a_node(WHOLE, CARD, ready=False, cordoned=True),)
    assert states(client) == ("cordoned", ["cordoned", "cordoned"])
    port.facts["held_cards"] = frozenset({"d1"})
    assert states(client) == ("draining", ["cordoned", "draining"])
    port.nodes = (a_node(WHOLE, CARD, ready=False),)
    assert states(client)[0] == "not-ready"


def test_an_application_that_stops_drains_while_it_has_pods(client, port):
    def state():
        (node,) = data(client.get(RESOURCES))
        return [row.get("state", "") for card in node["devices"] for row in card["bindings"]]

    port.bind(a_row(CARD, mib=1000))
    assert state() == [""]
    port.have(an_app(state=AppState.STOPPING))
    assert state() == ["draining"]


# --- who may see and change what ---

VISIBLE = [
    ("GET", RESOURCES, None),
    ("GET", "/gpus", None),
    ("GET", f"{RESOURCES}/problems", None),
    ("POST", f"{BOUND}/validate", {"computeBinding": CHOICE}),
    ("POST", f"{BOUND}/validate", {}),
    ("POST", f"{COMFY}/resume", {"computeBinding": CHOICE}),
    ("POST", f"{COMFY}/install", {"computeBinding": CHOICE}),
    ("GET", BOUND, None),
    ("GET", f"{RESOURCES}/quotas", None),
]
OF_AN_APP = [
    ("GET", BOUND, None),
    ("DELETE", BOUND, None),
    ("POST", f"{BOUND}/validate", {"computeBinding": CHOICE}),
    ("POST", f"{COMFY}/resume", {"computeBinding": CHOICE}),
    ("POST", f"{COMFY}/install", {"computeBinding": CHOICE}),
    ("POST", f"{COMFY}/uninstall", None),
    ("POST", "/gpus/d0/assign", {"appName": "comfyui"}),
    ("POST", "/gpus/d0/unassign", {"appName": "comfyui"}),
    ("PUT", "/gpus/assignments/bulk", {"appName": "comfyui", "assign": [{"id": "d0"}]}),
]
OF_OPERATORS = [
    ("PUT", SWITCH, {"supportType": "Exclusive"}),
    ("POST", "/gpus/d1/mode", {"mode": 0}),
    ("POST", f"{RESOURCES}/migrate", {"dryRun": False}),
    ("POST", f"{RESOURCES}/clean", {"dryRun": False}),
    ("POST", f"{RESOURCES}/migrate", {}),
    ("POST", f"{RESOURCES}/clean", {}),
]
OF_EVERYBODY = [("GET", f"{ROOT}/gpu/types", None), ("POST", f"{RESOURCES}/preflight", {"demands": []})]


def shared():
    """A card that is cut for two owners, and a row of a card that is gone for each."""
    port = hold(STOPPED, an_app("comfyui", "bob", state=AppState.STOPPED), an_app("secret", "bob"))
    gone = a_card(device="gone")
    port.bind(a_row(CARD, "secret", "bob", mib=1000), a_row(gone, "secret", "bob"), a_row(gone, "mine", "alice"))
    port.facts["quotas"] = {"bob": OwnerQuota(cards=7), "alice": OwnerQuota(cards=9)}
    return port


@pytest.mark.parametrize(("method", "path", "body"), VISIBLE)
def test_a_tenant_sees_own_applications_only_and_an_operator_all(method, path, body):
    seen = client_of(shared()).request(method, path, json=body)
    assert seen.status_code == 200, seen.text
    assert "secret" not in seen.text
    assert "bob" not in seen.text
    shows_all = path in (RESOURCES, "/gpus", f"{RESOURCES}/problems") or path.endswith("validate")
    query = "?owner=alice" if path.startswith(COMFY) else ""
    found = client_of(shared()).request(method, f"{path}{query}", json=body, headers=ADMIN)
    assert found.status_code == 200, found.text
    assert ("secret" in found.text) is shows_all


@pytest.mark.parametrize(("method", "path", "body"), OF_AN_APP)
def test_only_the_owner_and_an_operator_change_an_application(method, path, body):
    def answer(user, owner=""):
        port = shared()
        query = f"?owner={owner}" if owner else ""
        before = port.state, list(port.reported)
        found = client_of(port).request(method, f"{path}{query}", json=body, headers={"x-user": user})
        return found.status_code, (port.state, list(port.reported)) == before

    assert answer("alice")[0] == 200
    assert answer("root", "alice")[0] == 200
    assert answer("bob", "alice") == (403, True)
    assert answer("nobody") == (403, True)
    status, untouched = answer("carol")  # she has no such application
    assert untouched
    assert status == (200 if path.endswith(("uninstall", "unassign")) else 404)


@pytest.mark.parametrize(("method", "path", "body"), OF_OPERATORS)
def test_only_an_operator_changes_cards_and_rows_of_all_owners(method, path, body):
    for user, status in (("alice", 403), ("bob", 403), ("nobody", 403), ("root", 200)):
        port = shared()
        before = port.state
        assert client_of(port).request(method, path, json=body, headers={"x-user": user}).status_code == status
        assert user == "root" or port.state == before


def test_the_matrix_of_roles_has_each_route():
    routes = compute_resources(Bindings(shared()), caller_of).routes
    there = {(method, route.path) for route in routes for method in route.methods - {"HEAD"}}
    tried = {(method, path) for method, path, _ in (*VISIBLE, *OF_AN_APP, *OF_OPERATORS, *OF_EVERYBODY)}

    def pattern(path):
        path = path.replace("/apps/comfyui", "/apps/{name}").replace(
            "/nodes/n1/devices/d1", "/nodes/{node}/devices/{device}"
        )
        return path.replace("/gpus/d0/", "/gpus/{id}/").replace("/gpus/d1/", "/gpus/{id}/")

    assert {(method, pattern(path)) for method, path in tried} == there
