"""The history and the usage as clients of a real server see them."""

from __future__ import annotations

import httpx2
import msgspec
import pytest

from tests.server.test_http_api import opened, program, refusal
from ullage.client.client import connect


def ran(http: httpx2.Client, **body: object) -> str:
    session = opened(http, application="command", close_when_done=True, resreq="cpu=1,gpu=1,mem=256m", **body)
    inputs = {"inputs": [program("sh", "-c", "exit 0")], "key": "k"}
    http.post(
        f"/v1/sessions/{session}/tasks",
        content=msgspec.msgpack.encode(inputs),
        headers={"Content-Type": "application/msgpack"},
    ).raise_for_status()
    http.get(f"/v1/sessions/{session}/results?wait=50").raise_for_status()
    return session


def test_a_session_is_in_the_history_after_its_deletion(http: httpx2.Client) -> None:
    session = ran(http, owner="ann")
    with connect() as client:
        while client._api.session(session).state == "open":
            pass
        client.delete_session(session)
        row = next(row for row in client.history(owner="ann") if row.session == session)
        assert (row.state, row.succeed, row.application, row.queue) == ("succeed", 1, "command", "default")
        assert row.started_at is not None
        assert row.ran_s > 0
        assert row.card_s == pytest.approx(row.ran_s)
        assert client.history(owner="nobody") == []
        assert client.history(states=["failed"], owner="ann") == []
        (stay,) = [stay for stay in client.stays(owner="ann") if stay.session == row.number]
        assert (stay.cards, stay.cores, len(stay.gpus)) == (1.0, 1.0, 1)


def test_usage_has_a_row_for_each_group_and_what_was_offered(http: httpx2.Client) -> None:
    ran(http, owner="bob")
    with connect() as client:
        found = client.usage(["owner", "queue"], since=0.0)
        (row,) = [row for row in found.rows if row.owner == "bob"]
        assert (row.queue, row.application, row.sessions) == ("default", "", 1)
        assert row.card_s > 0
        assert [each.at for each in found.offered] == [0.0]
        steps = client.usage(["owner"], since=found.until - 7200, until=found.until, step=3600.0)
        assert {row.at for row in steps.rows} <= {found.until - 7200, found.until - 3600}


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("history?since=yesterday", "since"),
        ("history?state=running,gone", "state"),
        ("history?limit=0", "limit"),
        ("history?colour=red", "query"),
        ("usage?by=owner,color", "by"),
        ("usage?since=10&until=5", "since"),
        ("usage?until=0", "since"),
        ("usage?by=", "by"),
        ("usage?since=0&step=1", "step"),
        ("usage?step=0", "step"),
        ("usage?limit=0", "limit"),
        ("usage?since=0&until=100000&step=10&limit=11", "limit"),
        ("history/stays?until=-1", "until"),
    ],
)
def test_a_wrong_question_is_refused_by_the_name_of_its_field(http: httpx2.Client, path: str, field: str) -> None:
    assert refusal(http.get(f"/v1/{path}")) == (400, "invalid-request", field)


def test_closed_sessions_are_deleted_some_at_a_time_by_queue_owner_and_age(http: httpx2.Client) -> None:
    names = [opened(http, owner="carl", id=f"carl-{n}") for n in range(5)]
    for name in names[:4]:
        http.post(f"/v1/sessions/{name}/close").raise_for_status()
    with connect() as client:
        assert list(client.delete_sessions(owner="carl", before=1.0)) == []
        assert list(client.delete_sessions(owner="carl", queue="none")) == []
        assert list(client.delete_sessions(owner="carl", dry_run=True)) == names[:4]
        first = http.post("/v1/sessions/delete-closed", json={"owner": "carl", "limit": 3}).json()
        assert first["sessions"] == names[:3]
        assert first["next"] is not None
        assert list(client.delete_sessions(owner="carl")) == names[3:4]
        assert [body.id for body in client.sessions(owner="carl")] == names[4:]
        assert [row.session for row in client.history(owner="carl")] == names
    assert refusal(http.post("/v1/sessions/delete-closed", json={"limit": 0})) == (400, "invalid-request", "limit")
