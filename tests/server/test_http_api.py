"""The HTTP API as a client without our SDK sees it, on a real server."""

from __future__ import annotations

import base64
import socket
from urllib.parse import urlsplit

import httpx2
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.system.live_server import LiveServer, wait_until

FUNCTION = {"application": "function", "resreq": "cpu=1,mem=256m"}


def program(*argv: str) -> bytes:
    return msgspec.msgpack.encode({"argv": argv, "cwd": None, "env": {"PATH": "/usr/bin:/bin"}, "stdin": None})


def opened(http: httpx2.Client, **body: object) -> str:
    answer = http.post("/v1/sessions", json={**FUNCTION, **body})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def refusal(answer: httpx2.Response) -> tuple[int, str, str | None]:
    body = answer.json()
    assert body["message"]
    return answer.status_code, body["code"], body["field"]


# --- who may come in ------------------------------------------------------------------------------


def test_without_a_token_nothing_is_told_but_that_the_server_lives(server: LiveServer):
    with httpx2.Client(base_url=server.url, timeout=60) as stranger:
        assert stranger.get("/healthz").text == "ok"
        assert refusal(stranger.get("/v1/nodes"))[:2] == (401, "unauthorized")
        assert stranger.get("/metrics").status_code == 401
        wrong = {"Authorization": "Bearer " + "0" * 64}
        assert refusal(stranger.post("/v1/sessions", json=FUNCTION, headers=wrong))[:2] == (401, "unauthorized")


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Host": "evil.example"}, id="under another name"),
        pytest.param({"Origin": "http://evil.example"}, id="from another page"),
    ],
)
def test_a_request_from_elsewhere_is_refused_even_with_the_token(http: httpx2.Client, headers: dict[str, str]):
    assert http.get("/v1/nodes", headers=headers).status_code == 403


def test_a_request_under_another_name_is_told_the_names_and_the_setting(http: httpx2.Client):
    message = http.get("/v1/nodes", headers={"Host": "evil.example"}).json()["message"]
    assert "use one of 127.0.0.1, localhost, or name it in the setting server.names" in message


def test_the_token_file_is_for_its_owner_alone(server: LiveServer):
    assert (server.home / "token").stat().st_mode & 0o777 == 0o600
    assert (server.home / "state.db").stat().st_mode & 0o777 == 0o600


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"application": "function", "resreq": "cpu=two"}, "cpu"),
        ({"application": "function", "resreq": "cpu=1,foo=2"}, "resreq"),
        ({"application": "function", "resreq": "cpu=0"}, "resreq"),
        ({"application": "function", "resreq": {"cpu": -1}}, "cpu"),
        ({"application": "function", "resreq": {"mem": "1g", "memory": "1g"}}, "resreq"),
        ({"application": "function", "priority": -1}, "priority"),
        ({"application": "function", "priority": "high"}, "priority"),
        ({"application": "function", "weight": 0}, "weight"),
        ({"application": "function", "batch_size": 0}, "batch_size"),
        ({"application": "function", "min_instances": 5, "max_instances": 2}, "max_instances"),
        ({"application": "function", "batch_size": 4, "max_instances": 3}, "max_instances"),
        ({"application": "function", "id": "../etc"}, "session"),
        ({"application": "function", "surprise": 1}, "body"),
        ({"application": "function", "queue": "nowhere"}, "queue"),
        ({"application": "nothing"}, "application"),
        ({}, "body"),
    ],
    ids=str,
)
def test_a_bad_session_is_refused_with_the_field_and_nothing_changes(
    http: httpx2.Client, body: dict[str, object], field: str
):
    before = as_opened(http)
    status, _, named = refusal(http.post("/v1/sessions", json=body))
    assert (status in (400, 404), named) == (True, field)
    assert as_opened(http) == before


def as_opened(http: httpx2.Client) -> dict[str, list[object]]:
    """Return the specification of each session by id; its counts change while earlier sessions of this server run."""
    fields = ("application", "queue", "resreq", "priority", "weight", "min_instances", "max_instances", "batch_size")
    return {session["id"]: [session[field] for field in fields] for session in http.get("/v1/sessions").json()}


def test_invalid_json_is_refused(http: httpx2.Client):
    assert refusal(http.post("/v1/sessions", content=b"{nope"))[:2] == (400, "invalid-request")


def test_a_body_that_is_too_large_is_refused(http: httpx2.Client):
    answer = http.post("/v1/sessions", content=b" " * (9 << 20))
    assert refusal(answer)[:2] == (400, "body-too-large")


@pytest.mark.parametrize("query", ["limit=0", "limit=100000", "after=-1", "after=nan", "limit=x"])
def test_a_bad_page_is_refused(http: httpx2.Client, query: str):
    assert http.get(f"/v1/events?{query}").status_code == 400


def test_an_unknown_name_is_not_found(http: httpx2.Client):
    for path in ("/v1/sessions/none", "/v1/sessions/none/why", "/v1/sessions/none/results", "/v1/applications/none"):
        assert refusal(http.get(path))[:2] == (404, "not-found"), path
    assert refusal(http.post("/v1/nodes/none/cordon"))[:2] == (404, "not-found")


# --- sessions and tasks ---------------------------------------------------------------------------


def test_a_program_runs_and_its_output_and_result_are_read(http: httpx2.Client):
    session = opened(http, application="command")
    inputs = [base64.b64encode(program("sh", "-c", "echo out; echo err >&2; exit 3")).decode()]
    submitted = http.post(f"/v1/sessions/{session}/tasks", json={"inputs": inputs, "key": "k"})
    assert (submitted.status_code, submitted.json()) == (201, {"first": 1, "count": 1})
    (result,) = http.get(f"/v1/sessions/{session}/results?wait=30").json()["results"]
    assert (result["task"], result["state"], result["code"]) == (1, "failed", 3)
    log = http.get(f"/v1/sessions/{session}/tasks/1/log?follow=1").text
    for name, data in (("stdout", b"out\n"), ("stderr", b"err\n")):
        assert f"event: {name}\r\ndata: {base64.b64encode(data).decode()}" in log
    rest = http.get(f"/v1/sessions/{session}/tasks/1/log", headers={"Last-Event-ID": "o4e0"}).text
    assert "stdout" not in rest
    assert "stderr" in rest
    assert http.post(f"/v1/sessions/{session}/close").json()["state"] == "closed"
    closed = http.get(f"/v1/sessions/{session}/results?after=1&wait=30").json()
    assert closed == {"results": [], "next": 1, "closed": True}


def test_a_submission_is_taken_once_however_often_it_is_sent(http: httpx2.Client):
    session = opened(http, resreq="gpu=99")
    body = msgspec.msgpack.encode({"inputs": [b"a", b"b"], "key": "same"})
    headers = {"Content-Type": "application/msgpack", "Accept": "application/msgpack"}
    answers = [http.post(f"/v1/sessions/{session}/tasks", content=body, headers=headers) for _ in range(3)]
    assert [msgspec.msgpack.decode(answer.content) for answer in answers] == [{"first": 1, "count": 2}] * 3
    assert http.get(f"/v1/sessions/{session}").json()["pending"] == 2


def test_a_request_too_large_for_any_node_is_reported_at_once_and_blocks_no_other(http: httpx2.Client):
    answer = http.post("/v1/sessions", json={**FUNCTION, "resreq": "gpu=5"}).json()
    assert answer["reason"] == "unplaceable"
    assert "needs 5 GPUs" in answer["message"]
    other = opened(http, application="command")
    tasks = {"inputs": [base64.b64encode(program("true")).decode()], "key": "k"}
    http.post(f"/v1/sessions/{other}/tasks", json=tasks)
    assert http.get(f"/v1/sessions/{other}/results?wait=30").json()["results"][0]["state"] == "succeed"


def test_a_flag_that_is_none_is_refused(http: httpx2.Client):
    for path, name in (
        (f"/v1/sessions/{opened(http)}/log?follow=no", "follow"),
        ("/v1/plan?resreq=gpu=1&move=no", "move"),
    ):
        answer = http.get(path)
        assert (answer.status_code, answer.json()["field"]) == (400, name)


def test_an_empty_id_is_refused_and_not_chosen(http: httpx2.Client):
    answer = http.post("/v1/sessions", json={**FUNCTION, "id": ""})
    assert (answer.status_code, answer.json()["field"]) == (400, "session")


def test_a_minimum_above_what_all_nodes_hold_is_a_warning_at_creation_and_at_a_change(http: httpx2.Client):
    created = http.post("/v1/sessions", json={**FUNCTION, "id": "too-many", "min_instances": 100_000}).json()
    assert created["reason"] != "unplaceable"
    (warning,) = created["warnings"]
    assert warning.startswith("min_instances 100000 is more than the nodes in service hold, even empty: ")
    assert http.get("/v1/sessions/too-many/why").json()["warnings"] == [warning]
    assert http.patch("/v1/sessions/too-many", json={"min_instances": 0}).json()["warnings"] == []
    changed = http.patch("/v1/sessions/too-many", json={"min_instances": 90_000}).json()["warnings"]
    assert changed == [warning.replace("100000", "90000")]
    http.post("/v1/sessions/too-many/cancel")


def test_a_running_task_can_be_cancelled_and_a_session_only_then_closed(http: httpx2.Client):
    session = opened(http, application="command")
    tasks = {"inputs": [base64.b64encode(program("sleep", "300")).decode()], "key": "k"}
    http.post(f"/v1/sessions/{session}/tasks", json=tasks)
    wait_until(lambda: http.get(f"/v1/sessions/{session}").json()["running"] > 0, "it runs")
    assert refusal(http.post(f"/v1/sessions/{session}/close"))[:2] == (409, "tasks-running")
    assert refusal(http.delete(f"/v1/sessions/{session}"))[:2] == (409, "session-open")
    assert http.post(f"/v1/sessions/{session}/tasks/1/cancel").json()["state"] == "cancelled"
    assert http.post(f"/v1/sessions/{session}/close").json()["cancelled"] == 1
    assert http.delete(f"/v1/sessions/{session}").status_code == 204
    assert http.get(f"/v1/sessions/{session}").status_code == 404


def test_an_open_session_changes_and_a_closed_one_does_not(http: httpx2.Client):
    session = opened(http)
    assert http.patch(f"/v1/sessions/{session}", json={"priority": 7, "max_instances": None}).json()["priority"] == 7
    assert http.patch(f"/v1/sessions/{session}", json={"weight": 0}).status_code == 400
    http.post(f"/v1/sessions/{session}/close")
    assert refusal(http.patch(f"/v1/sessions/{session}", json={"priority": 1}))[:2] == (409, "session-closed")


def test_opening_the_same_session_twice_is_one_session_and_another_spec_is_refused(http: httpx2.Client):
    for _ in range(2):
        assert http.post("/v1/sessions/mine/open", json=FUNCTION).json()["id"] == "mine"
    assert http.post("/v1/sessions/mine/open").json()["id"] == "mine"
    other = {**FUNCTION, "resreq": "cpu=2"}
    assert refusal(http.post("/v1/sessions/mine/open", json=other))[::2] == (400, "resreq")
    assert refusal(http.post("/v1/sessions", json={**FUNCTION, "id": "mine"}))[:2] == (409, "already-exists")
    assert refusal(http.post("/v1/sessions/yours/open"))[:2] == (404, "not-found")


# --- applications, queues, nodes ------------------------------------------------------------------


def test_applications_are_registered_replaced_and_dropped(http: httpx2.Client):
    assert refusal(http.put("/v1/applications/mine", json={}))[::2] == (400, "command")
    http.put("/v1/applications/mine", json={"command": "python3 worker.py", "labels": ["a"], "retries": 2})
    assert http.put("/v1/applications/mine", json={"command": "other"}).json()["labels"] == []
    assert http.get("/v1/applications/mine").json()["retries"] == 0
    assert http.delete("/v1/applications/mine").status_code == 204
    assert refusal(http.delete("/v1/applications/function"))[:2] == (409, "built-in")


def test_queues_form_a_tree(http: httpx2.Client):
    body = {"weight": 3, "guarantee": "gpu=1", "limit": "gpu=2,cpu=8"}
    answer = http.put("/v1/queues/team", json=body).json()
    assert (answer["guarantee"], answer["limit"]) == ("gpu=1", "cpu=8,gpu=2")
    assert http.put("/v1/queues/sub", json={"parent": "team"}).status_code == 200
    assert refusal(http.put("/v1/queues/team", json={"parent": "sub"}))[0] == 400
    assert refusal(http.put("/v1/queues/lost", json={"parent": "nowhere"}))[0] == 400
    assert refusal(http.post("/v1/sessions", json={**FUNCTION, "queue": "team"}))[::2] == (400, "queue")
    assert refusal(http.delete("/v1/queues/team"))[:2] == (409, "queue-in-use")
    assert refusal(http.delete("/v1/queues/default"))[:2] == (409, "queue-in-use")
    assert [http.delete(f"/v1/queues/{name}").status_code for name in ("sub", "team", "team")] == [204, 204, 404]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"cpu": 1, "gpu": 0.5}, "cpu=1,mem=0,gpu=0.5"),
        ({"gpu": "0.25", "isolation": "soft"}, "cpu=0,mem=0,gpu=0.25"),
        ({"gpu": 2, "vram": "20g", "tflops": 60.5}, "cpu=0,mem=0,gpu=2,tflops=60.5,vram=20Gi"),
        ({"percent": 15, "vram": 1 << 30}, "cpu=0,mem=0,gpu=1,percent=15,vram=1Gi"),
        (
            {"gpu": 1, "gpu_model": "A100|H100", "gpu_vendor": "nvidia|acme", "gpu_index": 0, "pool": "p"},
            "cpu=0,mem=0,gpu=1,gpu_model=A100|H100,gpu_vendor=NVIDIA|acme,gpu_index=0,pool=p",
        ),
        ({"partition": "1g.10gb"}, "cpu=0,mem=0,gpu=1,isolation=partitioned,partition=1g.10gb"),
    ],
)
def test_a_requirement_may_be_a_mapping_with_every_key_of_the_text(
    http: httpx2.Client, given: dict[str, object], text: str
):
    session = http.post("/v1/sessions", json={"application": "function", "resreq": given}).json()
    assert session["resreq"] == text


@pytest.mark.parametrize("given", [{"gpu": True}, {"gpu": 1.5}, {"gpu": 0.5, "tflops": 3}, {"gpus": 1}, {}])
def test_a_mapping_that_asks_nonsense_is_refused(http: httpx2.Client, given: dict[str, object]):
    answer = http.post("/v1/sessions", json={"application": "function", "resreq": given})
    assert answer.status_code == 400, answer.text


def test_a_cordoned_node_takes_nothing_new(http: httpx2.Client):
    (node,) = http.get("/v1/nodes").json()
    assert http.post(f"/v1/nodes/{node['name']}/cordon").json()["cordoned"]
    session = opened(http)
    body = {"inputs": [base64.b64encode(b"x").decode()], "key": "k"}
    http.post(f"/v1/sessions/{session}/tasks", json=body)
    why = http.get(f"/v1/sessions/{session}/why").json()
    assert [rejection["code"] for rejection in why["rejections"]] == ["node-cordoned"]
    assert not http.post(f"/v1/nodes/{node['name']}/uncordon").json()["cordoned"]
    http.post(f"/v1/sessions/{session}/cancel")


# --- what describes the server --------------------------------------------------------------------


def test_the_metrics_are_valid_for_prometheus(http: httpx2.Client):
    families = {family.name: family for family in text_string_to_metric_families(http.get("/metrics").text)}
    assert {"ullage_tasks", "ullage_cycles", "ullage_queue_share", "ullage_node_held"} <= set(families)
    cards = {s.labels["gpu"]: s.value for s in families["ullage_gpu_held"].samples if s.labels["resource"] == "card"}
    assert sorted(cards) == ["0", "1", "2", "3"]
    gpus = [s.value for s in families["ullage_node_allocatable"].samples if s.labels["resource"] == "gpu"]
    assert gpus == [4000.0]
    fits = {sample.labels["cards"]: sample.value for sample in families["ullage_fits"].samples}
    assert fits == {"1": 4, "2": 2, "4": 1}
    assert [sample.value for sample in families["ullage_idle_milli"].samples] == [4000]
    assert families["ullage_fragmentation_milli"].samples == [], "too few tasks arrived to say so"


def test_the_overview_shows_idle_cards_and_fitting_requests(http: httpx2.Client):
    http.post("/v1/allocations", json={"uid": "part", "resreq": "gpu=0.25"})
    room = http.get("/v1/overview").json()["room"]
    assert (room["idle_milli"], room["fits"]) == (3750, {"1": 3, "2": 1, "4": 0})
    assert [each["idle_milli"] for each in room["models"]] == [3750]
    assert (room["fragments_milli"], room["tasks"] > 0, room["missing"] > 0) == (None, True, True)


def test_events_are_numbered_and_paged(http: httpx2.Client):
    opened(http)
    opened(http)
    shown = http.get("/v1/events?limit=1000").json()
    numbers = [event["number"] for event in shown]
    assert len(numbers) > 1
    assert numbers == sorted(set(numbers))
    assert http.get("/v1/events?limit=2").json() == shown[:2]
    assert http.get(f"/v1/events?after={numbers[0]}&limit=1").json() == [shown[1]]


# --- what nobody should send ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "no-such-route"),
        ("GET", "/static/nothing", 404, "no-such-route"),
        ("POST", "/v1/nodes", 405, "method-not-allowed"),
        ("GET", "/v1/nodes?colour=1", 400, "invalid-request"),
        ("GET", "/v1/sessions?state=opened", 400, "invalid-request"),
        ("GET", "/v1/events?limit=1e3", 400, "invalid-request"),
        ("GET", "/v1/events?after=" + "9" * 5000, 400, "invalid-request"),
        ("GET", "/v1/sessions/s/results?wait=nan", 400, "invalid-request"),
        ("GET", "/v1/sessions/s/tasks/0", 400, "invalid-request"),
        ("GET", "/v1/sessions/s/tasks/one", 400, "invalid-request"),
        ("GET", "/v1/sessions/s/tasks/" + "9" * 5000, 400, "invalid-request"),
        ("POST", "/v1/sessions/s/tasks/" + "9" * 5000 + "/cancel", 400, "invalid-request"),
        ("GET", "/v1/sessions/s/tasks/" + "9" * 5000 + "/log", 400, "invalid-request"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_every_refusal_is_an_error_body(http: httpx2.Client, method: str, path: str, status: int, code: str):
    answer = http.request(method, path)
    assert refusal(answer)[:2] == (status, code)
    assert len(answer.text) < 500
    if status == 405:
        assert "GET" in answer.headers["allow"]


def test_a_cursor_of_a_log_that_is_no_number_is_refused(http: httpx2.Client):
    session = opened(http)
    first = http.post(f"/v1/sessions/{session}/tasks", json={"inputs": [""], "key": "k"}).json()["first"]
    path = f"/v1/sessions/{session}/tasks/{first}/log"
    for cursor in (f"o{'9' * 5000}e0", "o1e", "o\u0661e0".encode()):
        assert refusal(http.get(path, headers={"Last-Event-ID": cursor}))[:2] == (400, "invalid-request")


@pytest.mark.parametrize("scheme", ["Bearer", "Page"])
def test_a_key_that_is_not_ascii_opens_nothing(server: LiveServer, scheme: str):
    with httpx2.Client(base_url=server.url, timeout=60) as stranger:
        answer = stranger.get("/v1/nodes", headers={"Authorization": f"{scheme} schlüssel".encode()})
        assert refusal(answer)[:2] == (401, "unauthorized")
        assert "knows no such token" in answer.json()["message"]
        strange = stranger.get("/v1/nodes", headers={"Cookie": "ullage=schlüssel".encode()})
        assert refusal(strange)[:2] == (401, "unauthorized")


def test_a_session_may_be_opened_by_a_body_in_chunks(http: httpx2.Client):
    body = b'{"application": "function", "resreq": "cpu=1,mem=256m", "priority": 7}'
    answer = http.post("/v1/sessions/in-chunks/open", content=iter([body[:10], body[10:]]))
    assert answer.status_code == 200, answer.text
    assert answer.json()["priority"] == 7
    again = http.post("/v1/sessions/in-chunks/open", content=iter([]))
    assert again.json()["id"] == "in-chunks"


@pytest.mark.parametrize(
    "setup",
    [
        {"environment": {"": "x"}},
        {"environment": {"A=B": "x"}},
        {"environment": {"A B": "x"}},
        {"environment": {"A": "x\0y"}},
        {"environment": {"A": "x" * 200_000}},
        {"python": "/usr/bin/py\0thon"},
        {"working_directory": "relative"},
    ],
    ids=lambda setup: str(setup)[:40],
)
def test_a_setup_that_no_process_can_have_is_refused_with_its_field(http: httpx2.Client, setup: dict[str, object]):
    status, code, field = refusal(http.post("/v1/sessions", json={**FUNCTION, "setup": setup}))
    assert (status, code) == (400, "invalid-request")
    assert (field or "").startswith("setup.")


def test_a_client_that_leaves_in_mid_body_is_no_fault_of_the_server(server: LiveServer):
    before = (server.home / "server.log").stat().st_size
    host, port = urlsplit(server.url).hostname or "", urlsplit(server.url).port
    head = f"POST /v1/sessions HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {server.token}\r\n"
    with socket.create_connection((host, port), timeout=60) as caller:
        caller.sendall(f"{head}Content-Length: 100\r\nExpect: 100-continue\r\n\r\n".encode())
        assert caller.recv(100).startswith(b"HTTP/1.1 100 ")  # the handler waits for the body by now
        caller.sendall(b"{")
    with server.client() as other:
        assert other.get("/healthz").text == "ok"
    assert "Traceback" not in (server.home / "server.log").read_text()[before:]
