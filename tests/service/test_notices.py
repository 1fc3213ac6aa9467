"""Notices of ended sessions."""

import json
from pathlib import Path

import pytest
from tests.lab import Lab, Machine, a_node

from ullage.model.error import InvalidRequest
from ullage.model.notice import Notice, check_host, check_url
from ullage.model.notify_on import NotifyOn
from ullage.service.notices import FIRST_PAUSE_S, MOST_ATTEMPTS
from ullage.service.store_port import Page

URL = "https://hooks.example.com/secret?x=1"
_ALL = Page(0, 1000)


def waiting(lab: Lab) -> list[Notice]:
    return lab.service.sessions.notices.waiting


def a_session(lab: Lab, name: str = "s", **spec: object) -> None:
    lab.session(name, tasks=1, close_when_done=True, notify=URL, **spec)


def test_the_end_of_a_session_has_a_notice_with_its_outcome_and_counts() -> None:
    with Lab(a_node()) as lab:
        a_session(lab)
        assert waiting(lab) == []
        lab.finish("s", code=1)
        (notice,) = waiting(lab)
        body = json.loads(notice.body)
        assert (notice.url, notice.session, body["session"], body["outcome"]) == (URL, "s", "s", "failed")
        assert (body["failed"], body["succeed"], body["notice"]) == (1, 0, "s@1")


@pytest.mark.parametrize(("on", "code", "count"), [("end", 0, 1), ("end", 1, 1), ("fail", 0, 0), ("fail", 1, 1)])
def test_a_notice_is_of_all_ends_or_of_failures_only(on: str, code: int, count: int) -> None:
    with Lab(a_node()) as lab:
        a_session(lab, notify_on=NotifyOn(on))
        lab.finish("s", code=code)
        assert len(waiting(lab)) == count


def test_a_session_that_is_cancelled_before_it_has_a_task_has_no_notice() -> None:
    with Lab(a_node()) as lab:
        lab.session("refused", "gpu=99", notify=URL)
        lab.service.sessions.cancel("refused", lambda: None)
        a_session(lab, "given-up", resreq="gpu=99")
        lab.service.sessions.cancel("given-up", lambda: None)
        lab.pump()
        assert [notice.session for notice in waiting(lab)] == ["given-up"]


def test_a_notice_survives_restarts_and_the_deletion_of_its_session_until_it_is_delivered(tmp_path: Path) -> None:
    with Machine(str(tmp_path / "db"), a_node()) as lab:
        a_session(lab)
        lab.finish("s")
        before = waiting(lab)
        lab.service.sessions.delete("s", lambda: None)
        lab.pump()
        lab.restart()
        assert waiting(lab) == before
        lab.service.sessions.notices.failed(before[0], "no route", final=False)
        lab.pump()
        lab.restart()
        (later,) = waiting(lab)
        assert (later.attempts, later.due_at) == (1, lab.now + FIRST_PAUSE_S)
        lab.service.sessions.notices.sent(later)
        lab.pump()
        lab.restart()
        assert waiting(lab) == []


def test_attempts_are_bounded_and_the_pauses_grow() -> None:
    with Lab(a_node()) as lab:
        a_session(lab)
        lab.finish("s")
        pauses = []
        for _ in range(MOST_ATTEMPTS):
            (notice,) = waiting(lab)
            pauses.append(notice.due_at - lab.now)
            lab.service.sessions.notices.failed(notice, "HTTP status 503", final=False)
        assert waiting(lab) == []
        assert pauses[1:] == [FIRST_PAUSE_S * 3**n for n in range(MOST_ATTEMPTS - 1)]
        lab.pump()
        (event,) = [each for each in lab.store.events(_ALL, "s") if each.kind == "session.notice-failed"]
        assert event.message == "hooks.example.com did not take the notice after 8 attempts: HTTP status 503"


def test_a_final_refusal_ends_the_attempts() -> None:
    with Lab(a_node()) as lab:
        a_session(lab)
        lab.finish("s")
        lab.service.sessions.notices.failed(waiting(lab)[0], "HTTP status 404", final=True)
        assert waiting(lab) == []


@pytest.mark.parametrize("url", ["", "hooks.example.com", "ftp://x/y", "http://", "http://x y/", "file:///etc/passwd"])
def test_what_is_no_url_of_http_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="write a URL such as"):
        check_url(url)


def test_an_operator_may_limit_the_hosts() -> None:
    check_host("https://a.example.com/x", ["*.example.com"])
    with pytest.raises(InvalidRequest, match=r"to these hosts only \(notify_hosts\): \*.example.com"):
        check_host("http://169.254.169.254/latest", ["*.example.com"])
    with Lab(a_node(), notify_hosts=()) as lab:
        with pytest.raises(InvalidRequest, match=r"notify_hosts\): none"):
            a_session(lab)
        assert not lab.service.state.sessions
