"""Pages of the list of sessions: filters, search, order and total, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import httpx2
import pytest

from tests.lab import Lab, a_node
from tests.service.answers import SERVER
from ullage.server.answers import Answers

TEAMS = ("anna", "bert", "cleo")
COUNT = 12


@pytest.fixture(scope="module")
def filled(server) -> Iterator[httpx2.Client]:
    """Twelve sessions of three owners in two queues; the last three are closed."""
    with server.client() as client:
        client.put("/v1/queues/research", json={})
        for number in range(COUNT):
            body = {
                "application": "command" if number % 4 == 3 else "function",
                "id": f"list-{number:02}",
                "owner": TEAMS[number % 3],
                "queue": "research" if number % 2 else "default",
                "priority": number % 5,
            }
            assert client.post("/v1/sessions", json=body).status_code == 201
        for number in range(COUNT - 3, COUNT):
            client.post(f"/v1/sessions/list-{number:02}/cancel")
        yield client


def listed(client: httpx2.Client, **query: object) -> tuple[list[str], int]:
    answer = client.get("/v1/sessions", params=query)
    assert answer.status_code == 200, answer.text
    return [session["id"].removeprefix("list-") for session in answer.json()], int(answer.headers["X-Total-Count"])


def test_without_a_query_all_sessions_come_in_the_order_of_creation(filled):
    assert listed(filled) == ([f"{number:02}" for number in range(COUNT)], COUNT)


def test_pages_follow_one_another_and_say_how_many_there_are(filled):
    pages = [listed(filled, limit=5, offset=offset) for offset in (0, 5, 10, 15)]
    assert [len(page) for page, _ in pages] == [5, 5, 2, 0]
    assert {total for _, total in pages} == {COUNT}
    assert [name for page, _ in pages for name in page] == listed(filled)[0]


def test_filters_are_combined(filled):
    assert listed(filled, owner="bert", queue="research") == (["01", "07"], 2)
    assert listed(filled, state="closed") == (["09", "10", "11"], 3)
    assert listed(filled, owner="anna", state="closed", limit=1) == (["09"], 1)
    assert listed(filled, owner="nobody") == ([], 0)


def test_the_search_finds_a_part_of_a_name_in_any_case(filled):
    assert listed(filled, search="LIST-0") == ([f"{number:02}" for number in range(10)], 10)
    assert listed(filled, search="cle")[1] == 4
    assert listed(filled, search="Research")[1] == 6
    assert listed(filled, search="command")[0] == ["03", "07", "11"]


def test_equals_stay_in_the_order_of_creation_either_way(filled):
    assert listed(filled, sort="priority", limit=4)[0] == ["00", "05", "10", "01"]
    assert listed(filled, sort="-priority", limit=4)[0] == ["04", "09", "03", "08"]
    assert listed(filled, sort="-created", limit=2)[0] == ["11", "10"]
    assert listed(filled, sort="owner", limit=4)[0] == ["00", "03", "06", "09"]


@pytest.mark.parametrize(
    ("query", "field", "text"),
    [
        ({"state": "opened"}, "state", "did you mean open?"),
        ({"sort": "-priorty"}, "sort", "did you mean priority?"),
        ({"limit": "0"}, "limit", "1 to 10000"),
        ({"offset": "-1"}, "offset", "a whole number"),
        ({"queue": ["a", "b"]}, "queue", "'b' is not valid: it is given more than once"),
        ({"ownr": "anna"}, "query", "this route reads state, owner, queue"),
    ],
)
def test_a_wrong_query_is_refused_by_name(filled, query, field, text):
    answer = filled.get("/v1/sessions", params=query)
    assert (answer.status_code, answer.json()["field"]) == (400, field)
    assert text in answer.json()["message"]


def test_the_document_of_the_api_describes_pages_and_their_total(filled):
    operation = filled.get("/v1/openapi.json").json()["paths"]["/v1/sessions"]["get"]
    names = [parameter["name"] for parameter in operation["parameters"]]
    assert names == ["state", "owner", "queue", "search", "sort", "limit", "offset"]
    assert "X-Total-Count" in operation["responses"]["200"]["headers"]


def test_an_overview_of_few_sessions_has_those_with_executors_and_counts_all():
    with Lab(a_node(cpu=1)) as lab:
        lab.session("early", tasks=1)
        for number in range(5):
            lab.session(f"s{number}", priority=number)
        answers = Answers(lab.service, SERVER, {})
        few = answers.overview(0.0, 2)()
        assert [session.id for session in few.sessions] == ["early", "s4"]
        assert few.sessions_open == 6
        assert len(answers.overview(0.0)().sessions) == 6


def test_a_session_says_since_when_its_oldest_task_runs_and_how_long_each_may():
    with Lab(a_node(cpu=4)) as lab:
        lab.session("own", tasks=2, task_timeout_s=60.0)
        began = lab.now
        lab.pass_time(7)
        lab.session("other", tasks=1)
        lab.session("waits", "cpu=1000")
        answers, records = Answers(lab.service, SERVER, {}), lab.service.state.sessions
        found = {body.id: body for body in answers.sessions(records.values())()}
        assert (found["own"].running_since, found["own"].task_timeout_s) == (began, 60.0)
        assert (found["other"].running_since, found["other"].task_timeout_s) == (began + 7, None)
        assert found["waits"].running_since is None
        application = found["other"].application
        lab.service.state.applications[application] = replace(
            lab.service.state.applications[application], task_timeout_s=90.0
        )
        limits = {body.id: body.task_timeout_s for body in answers.sessions(records.values())()}
        assert limits == {"own": 60.0, "other": 90.0, "waits": 90.0}
