"""Arrays, dependencies and begin times on a real server."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import ClassVar

import httpx2
import pytest

from tests.system.live_server import LiveServer, wait_until
from ullage import Unplaceable, connect

Ullage = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def ullage(http: httpx2.Client, tmp_path: Path) -> Ullage:
    """The installed command, in a directory of its own, beside a real server."""

    def call(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "ullage.cli.main", *arguments],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done

    return call


SMALL = ("-r", "cpu=0.1")


def test_each_task_of_an_array_finds_its_index_and_the_bounds(ullage: Ullage) -> None:
    script = "echo $ULLAGE_ARRAY_INDEX of $ULLAGE_ARRAY_MIN-$ULLAGE_ARRAY_MAX, $ULLAGE_ARRAY_COUNT"
    done = ullage("run", *SMALL, "--array", "1,4-8:2%2", "--", "sh", "-c", script)
    assert sorted(done.stdout.splitlines()) == [f"{index} of 1-8, 4" for index in (1, 4, 6, 8)]


def test_an_array_with_a_failed_task_fails_and_names_it(ullage: Ullage) -> None:
    script = "echo $ULLAGE_ARRAY_INDEX; exit $((ULLAGE_ARRAY_INDEX == 5))"
    done = ullage("run", *SMALL, "-n", "five", "--array", "4-6", "--", "sh", "-c", script, code=1)
    assert sorted(done.stdout.splitlines()) == ["4", "5", "6"]
    assert "1 of 3 tasks of five did not succeed\nhint: `ullage logs five:5` shows" in done.stderr
    assert "  five:5 failed: sh: exit code 1\n" in done.stderr
    assert ullage("logs", "five:5").stdout == "5\n"
    assert ullage("tasks", "five", "--state", "failed", "-o", "index", "--no-header").stdout == "5\n"
    again = ullage("submit", *SMALL, "-n", "five", "--", "true", code=2).stderr
    assert "five exists already; choose another name, or delete that one once it is closed\n" in again
    assert ullage("logs", "-f", "five:5", code=1).stdout == "5\n"
    tasks = [line.split()[:3] for line in ullage("tasks", "five").stdout.splitlines()]
    assert tasks[:3] == [["TASK", "INDEX", "STATE"], ["five/1", "4", "succeed"], ["five/2", "5", "failed"]]


def test_at_most_as_many_tasks_of_an_array_run_at_once_as_requested(ullage: Ullage, tmp_path: Path) -> None:
    script = f"mkdir {tmp_path}/alone && rmdir {tmp_path}/alone"
    ullage("run", *SMALL, "--array", "0-5%1", "--", "sh", "-c", script)


def test_one_index_of_an_array_is_cancelled_and_an_unknown_one_is_refused(ullage: Ullage, http: httpx2.Client) -> None:
    ullage("submit", *SMALL, "-n", "night", "--begin", "+1h", "--array", "10-12", "--", "true")
    ullage("cancel", "night:11")
    assert [task["state"] for task in http.get("/v1/sessions/night/tasks").json()] == [
        "pending",
        "cancelled",
        "pending",
    ]
    done = ullage("cancel", "night:13", code=2)
    assert "ullage: night has no index 13: it has the indices 10-12" in done.stderr
    assert "waiting-for-begin-time: it begins at 20" in ullage("why", "night").stdout
    ullage("cancel", "night")
    ullage("submit", *SMALL, "-n", "single", "--begin", "+1h", "--", "true")
    assert "single is no array; write single/N" in ullage("logs", "single:1", code=2).stderr
    ullage("cancel", "single")


def test_ranges_of_indices_and_of_tasks_are_cancelled_all_or_none(ullage: Ullage, http: httpx2.Client) -> None:
    def cancelled(session: str) -> str:
        tasks = http.get(f"/v1/sessions/{session}/tasks", params={"limit": 1000}).json()
        return " ".join(str(each["index"]) for each in tasks if each["state"] == "cancelled")

    ullage("submit", *SMALL, "-n", "wide", "--begin", "+1h", "--array", "0-99", "--", "true")
    ullage("submit", *SMALL, "-n", "other", "--begin", "+1h", "--array", "1-3", "--", "true")
    for wrong, why in (
        ("wide:90-101", "wide has no index 100-101: it has the indices 0-99"),
        ("wide:3,7,x", "write SESSION/N with N from 1"),
        ("wide:7-3", "7-3 is empty: write the smaller index first"),
        ("wide:1-", "write SESSION/N"),
        ("wide/0-3", "write SESSION/N with N from 1"),
        ("wide/99-102", "task 101-102 of wide does not exist: it has 100 tasks"),
        ("wide_[50-99]", "it is written wide:50-99 here"),
        ("nobody:1-2", "session nobody does not exist"),
    ):
        assert why in ullage("cancel", "other:1", "wide:5", wrong, code=2).stderr
    assert cancelled("other") == cancelled("wide") == ""
    assert ullage("cancel", "--dry-run", "wide:50-99").stdout == "would cancel wide:50-99\n"
    assert cancelled("wide") == ""
    ullage("cancel", "wide:3,7,10-12", "wide/1-2", "wide:90-98:4", "other:2")
    assert cancelled("wide") == "0 1 3 7 10 11 12 90 94 98"
    assert cancelled("other") == "2"
    refused = http.post("/v1/sessions/wide/tasks/cancel", json={"tasks": [5, 6, 101]})
    assert (refused.status_code, refused.json()["message"]) == (404, "task 101 of session wide does not exist")
    assert http.post("/v1/sessions/wide/tasks/cancel", json={"tasks": [1, 6, 6]}).json() == {"tasks": 1}
    assert cancelled("wide") == "0 1 3 5 7 10 11 12 90 94 98"
    ullage("cancel", "wide", "other")


def test_running_tasks_of_a_range_are_cancelled_and_others_go_on(ullage: Ullage, http: httpx2.Client) -> None:
    ullage("submit", *SMALL, "-n", "few", "--array", "1-4%2", "--", "sleep", "600")

    def task_states() -> list[str]:
        return [task["state"] for task in http.get("/v1/sessions/few/tasks").json()]

    wait_until(lambda: task_states() == ["running"] * 2 + ["pending"] * 2, "two run")
    ullage("cancel", "few:1,3")
    wait_until(lambda: task_states() == ["cancelled", "running", "cancelled", "running"], "one and three end")
    ullage("cancel", "few")


def test_logs_of_a_range_name_their_tasks_and_a_verb_for_one_task_takes_no_range(ullage: Ullage) -> None:
    ullage("run", *SMALL, "-n", "said", "--array", "1-9:2", "--", "sh", "-c", "echo $ULLAGE_ARRAY_INDEX")
    assert ullage("logs", "said:3,5-9:2").stdout == "[:3] 3\n[:5] 5\n[:7] 7\n[:9] 9\n"
    assert ullage("logs", "-f", "said/1-2").stdout == "[:1] 1\n[:3] 3\n"
    assert "said has no index 2,4" in ullage("logs", "said:1-5", code=2).stderr
    for words in (["why"], ["exec"], ["show", "task"]):
        last = ["--", "true"] if words == ["exec"] else []
        assert "it names 2 tasks; name one of them here" in ullage(*words, "said:1,3", *last, code=2).stderr


def test_the_exit_code_of_followed_logs_of_a_range_is_that_of_its_tasks(ullage: Ullage) -> None:
    script = "echo $ULLAGE_ARRAY_INDEX; exit $((ULLAGE_ARRAY_INDEX == 2))"
    ullage("run", *SMALL, "-n", "mixed", "--array", "1-3", "--", "sh", "-c", script, code=1)
    assert ullage("logs", "-f", "mixed:1,3").stdout == "[:1] 1\n[:3] 3\n"
    assert "1 tasks failed, and 0 were cancelled" in ullage("logs", "-f", "mixed:1-2", code=1).stderr


def test_a_program_runs_after_another_one_and_is_cancelled_if_that_failed(ullage: Ullage, tmp_path: Path) -> None:
    program = f"touch {tmp_path}/began; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exit 3"
    ullage("submit", *SMALL, "-n", "prep", "--", "sh", "-c", program)
    wait_until((tmp_path / "began").exists, "prep runs")
    ullage("submit", *SMALL, "-n", "train", "--after", "ok:prep", "--", "true")
    ullage("submit", *SMALL, "-n", "mend", "--after", "fail:prep", "--", "echo", "mended")
    why = ullage("why", "train").stdout
    assert "waiting-for-session: it waits for the success of prep, which has 1 running task and 0 pending" in why
    (tmp_path / "go").touch()
    assert ullage("logs", "-f", "mend").stdout == "mended\n"
    done = ullage("logs", "-f", "train", code=143)
    reason = "it was to run after ok:prep, which cannot happen any more: prep ended with 1 task failed"
    assert done.stderr == f"ullage: cancelled: {reason}\n"
    assert f"the session is closed: {reason}" in ullage("why", "train").stdout


@pytest.mark.parametrize(
    ("option", "text"),
    [
        (("--after", "ok:nobody"), "session nobody does not exist. It is named by after=ok:nobody"),
        (("--after", "nobody"), "after: 'nobody' is not valid: write ok:ID, end:ID, fail:ID or start:ID"),
        (("--array", "9-1"), "array: '9-1' is not valid"),
        (("--begin", "tomorow"), "begin: 'tomorow' is not valid: write 2026-12-01T08:00"),
    ],
)
def test_a_wrong_option_is_refused_by_name(ullage: Ullage, option: tuple[str, str], text: str) -> None:
    assert text in ullage("submit", *option, "--", "true", code=2).stderr


def test_sessions_are_held_and_let_go_and_get_another_priority(ullage: Ullage, http: httpx2.Client) -> None:
    for name in ("a", "b"):
        ullage("submit", *SMALL, "-n", name, "--begin", "never", "--", "true")
    ullage("update", "a", "--priority", "7", "--at-once", "2", "--weight", "3")
    assert "held until its begin is changed" in ullage("why", "a").stdout
    row = http.get("/v1/sessions/a").json()
    assert (row["priority"], row["max_instances"], row["weight"]) == (7, 2, 3)
    ullage("update", "a", "b", "--begin", "now", "--at-once", "none")
    row = http.get("/v1/sessions/a").json()
    assert (row["begin_at"], row["max_instances"], row["priority"]) == (None, None, 7)
    for name in ("a", "b"):
        ullage("logs", "-f", name)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing to change: give --priority, --weight, --at-once or --begin"),
        (("--at-once", "few"), "--at-once: 'few' is not valid: write a number from 1, or none"),
        (("--begin", "nevr"), "begin: 'nevr' is not valid: write 2026-12-01T08:00"),
    ],
)
def test_an_update_that_changes_nothing_is_refused(ullage: Ullage, words: tuple[str, ...], message: str) -> None:
    assert message in ullage("update", "a", *words, code=2).stderr


def test_a_begin_in_the_past_is_said_to_be_over(ullage: Ullage) -> None:
    done = ullage("run", *SMALL, "--begin", "2020-01-01T08:00", "--", "echo", "now")
    assert done.stdout == "now\n"
    assert done.stderr.startswith("warning: 2020-01-01 08:00:00")
    ullage("submit", *SMALL, "-n", "held", "--begin", "never", "--", "true")
    assert "is over: it begins at once" in ullage("update", "held", "--begin", "2020-01-01T08:00").stderr


def test_dependencies_and_begin_times_are_in_the_answers_of_the_api(ullage: Ullage, http: httpx2.Client) -> None:
    ullage("submit", *SMALL, "-n", "one", "--begin", "+1h", "--", "true")
    ullage("submit", *SMALL, "-n", "two", "--after", "end:one", "--after", "start:one", "--", "true")
    one, two = (http.get(f"/v1/sessions/{name}").json() for name in ("one", "two"))
    assert (one["begin_at"] is not None, one["after"]) == (True, [])
    assert (two["begin_at"], two["after"], two["awaits"]) == (None, ["end:one", "start:one"], ["end:one", "start:one"])
    ullage("cancel", "one", "two")


def test_the_python_client_states_dependencies_and_begin_times(server: LiveServer, http: httpx2.Client) -> None:
    assert os.environ["ULLAGE_ENDPOINT"] == server.url
    with connect() as client:
        with client.session(resreq="cpu=0.1", begin_at=1.0) as first:
            last = client.session(resreq="cpu=0.1", after=f"ok:{first.id}")
            future = last.submit(os.getpid)
            assert first.submit(len, "abc").result(60) == 3
            assert not future.done()
        assert future.result(60) > 0
        last.close()


def states(http: httpx2.Client, *names: str) -> list[str]:
    return [http.get(f"/v1/sessions/{name}").json()["state"] for name in names]


def test_cancel_by_filters_lists_what_it_cancels_and_needs_a_yes(ullage: Ullage, http: httpx2.Client) -> None:
    for name in ("a1", "a2"):
        ullage("submit", *SMALL, "-n", name, "--begin", "+1h", "--", "true")
    assert http.post("/v1/sessions", json={"application": "function", "id": "f1", "owner": "ann"}).status_code == 201
    done = ullage("cancel", "--app", "command", "--state", "pending", "--dry-run")
    assert [line.partition(",")[0] for line in done.stdout.splitlines()] == [
        "would cancel a1: pending",
        "would cancel a2: pending",
    ]
    refused = ullage("cancel", "--app", "command", code=2)
    assert "no terminal to ask on; --yes cancels" in refused.stderr
    assert refused.stdout == done.stdout
    assert states(http, "a1", "a2", "f1") == ["open", "open", "open"]
    assert ullage("cancel", "--user", "ann", "--yes").stdout == "cancels f1: idle, of ann, in queue default\n"
    assert states(http, "a1", "a2", "f1") == ["open", "open", "closed"]
    ullage("cancel", "-q", "default", "-y")
    assert states(http, "a1", "a2") == ["closed", "closed"]
    assert "no open session has queue=default" in ullage("cancel", "-q", "default").stderr


def test_a_cancel_that_selects_nothing_or_an_unknown_name_is_refused(ullage: Ullage) -> None:
    assert "name sessions, or select them by --queue" in ullage("cancel", code=2).stderr
    assert "not both" in ullage("cancel", "x", "--me", code=2).stderr
    assert "queue 'default-' does not exist: did you mean default?" in ullage("cancel", "-q", "default-", code=2).stderr
    assert (
        "application 'command-' does not exist: did you mean command?"
        in ullage("cancel", "--app", "command-", code=2).stderr
    )
    assert ullage("cancel", "x", "--dry-run").stdout == "would cancel x\n"


def test_the_question_is_answered_on_a_terminal(ullage: Ullage, http: httpx2.Client) -> None:
    ullage("submit", *SMALL, "-n", "asked", "--begin", "+1h", "--", "true")
    for answer, state, code in (("n", "open", 1), ("y", "closed", 0)):
        here, there = os.openpty()
        child = subprocess.Popen([sys.executable, "-m", "ullage.cli.main", "cancel", "--me"], stdin=there)
        os.write(here, f"{answer}\n".encode())
        assert child.wait(60) == code
        assert states(http, "asked") == [state]
        os.close(there)
        os.close(here)


def test_failed_tasks_of_an_array_run_again_with_their_indices(ullage: Ullage, tmp_path: Path) -> None:
    script = f"test -e {tmp_path}/mended && echo $ULLAGE_ARRAY_INDEX of $ULLAGE_ARRAY_COUNT"
    ullage("run", *SMALL, "-n", "part", "--array", "3-4", "--", "sh", "-c", script, code=1)
    (tmp_path / "mended").touch()
    done = ullage("requeue", "part:4")
    assert done.stdout.startswith("part:4: 1 task will run again in part-")
    new = done.stdout.split()[-1]
    assert ullage("logs", "-f", f"{new}:4").stdout == "4 of 2\n"
    assert "nothing-to-requeue: session" in ullage("requeue", new, code=75).stderr
    assert "part has no index 5-6" in ullage("requeue", "part:3-6", code=2).stderr
    both = ullage("requeue", "part:3-4").stdout
    assert both.startswith("part:3-4: 2 tasks will run again in part-")
    assert [ullage("logs", "-f", f"{both.split()[-1]}:{index}").stdout for index in (3, 4)] == ["3 of 2\n", "4 of 2\n"]


def test_a_running_program_is_ended_and_runs_again(ullage: Ullage, tmp_path: Path) -> None:
    script = f"if mkdir {tmp_path}/first; then echo begun; sleep 600; else echo again; fi"
    ullage("submit", *SMALL, "-n", "twice", "--", "sh", "-c", script)
    with subprocess.Popen(
        [sys.executable, "-m", "ullage.cli.main", "logs", "-f", "twice"], stdout=subprocess.PIPE, text=True
    ) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "begun\n"
        assert ullage("requeue", "twice").stdout == "twice: 1 running task will wait again\n"
        assert "again\n" in follower.stdout.read()
        assert follower.wait(60) == 0


def test_a_queue_has_defaults_and_maxima(ullage: Ullage, http: httpx2.Client) -> None:
    ullage(
        "queues", "set", "short", "--default-resreq", "cpu=0.1,mem=200m", "--max-resreq", "cpu=1", "--max-time", "1h"
    )
    body = next(queue for queue in http.get("/v1/queues").json() if queue["name"] == "short")
    stated = {name: body[name] for name in ("default_resreq", "max_resreq", "default_time_s", "max_time_s")}
    assert stated == {
        "default_resreq": "cpu=0.1,mem=200Mi,gpu=0",
        "max_resreq": "cpu=1",
        "default_time_s": None,
        "max_time_s": 3600.0,
    }
    ullage("submit", "-q", "short", "-n", "small", "--begin", "+1h", "--", "true")
    assert http.get("/v1/sessions/small").json()["resreq"] == "cpu=0.1,mem=200Mi,gpu=0"
    ullage("cancel", "small")
    done = ullage("submit", "-q", "short", "-t", "2h", "--", "true", code=2)
    assert "task_timeout_s: '7200' is not valid: queue short allows a task at most 3600 s (max_time_s)" in done.stderr
    assert done.stderr.endswith("; ask for less, or use another queue\n")
    done = ullage("submit", "-q", "short", "-r", "cpu=2", "--", "true", code=2)
    assert "queue short allows an executor at most cpu=1 (max_resreq); ask for less cpu" in done.stderr
    ullage("queues", "set", "short", "--max-time", "none", "--weight", "2")
    body = next(queue for queue in http.get("/v1/queues").json() if queue["name"] == "short")
    assert (body["max_time_s"], body["max_resreq"], body["weight"]) == (None, "cpu=1", 2)
    ullage("queues", "delete", "short")


def test_a_request_above_the_limit_of_its_queue_is_refused_unless_it_waits_for_a_higher_one(
    ullage: Ullage, http: httpx2.Client
) -> None:
    ullage("queues", "set", "tight", "--limit", "mem=300m")
    large = ("-q", "tight", "-r", "cpu=0.1,mem=400m")
    for line in (
        ("run", *large, "--", "true"),
        ("submit", *large, "-n", "refused", "--", "true"),
        ("submit", *large, "--array", "1-3", "--begin", "+1h", "--", "true"),
    ):
        done = ullage(*line, code=78)
        assert "it asks for mem=400Mi; there is a limit of mem=300Mi on queue tight" in done.stderr
        assert "raise the limit: ullage queues set tight --limit mem=400Mi; or wait with --wait" in done.stderr
    assert http.get("/v1/sessions/refused").status_code == 404, "its id can be given again"
    with connect() as client:
        for ask in (client.session, lambda **options: client.open_session("shared", **options)):
            with pytest.raises(Unplaceable, match="there is a limit of mem=300Mi on queue tight") as refused:
                ask(queue="tight", resreq="cpu=0.1,mem=200m", batch_size=2)
            assert "cpu=0.1,mem=150Mi,gpu=0 is within the limits" in refused.value.suggestions
    ullage("cancel", "shared")
    ullage("submit", *large, "--wait", "-n", "patient", "--", "true")
    assert "above-limit: it is larger than a limit ever allows" in ullage("why", "patient").stdout
    ullage("queues", "set", "tight", "--limit", "mem=400m")
    assert ullage("logs", "-f", "patient").stdout == ""
    ullage("queues", "delete", "tight")


def test_a_command_is_run_when_a_session_has_failed(ullage: Ullage, tmp_path: Path) -> None:
    command = f"echo $ULLAGE_NOTIFY_SESSION > {tmp_path}/told.new && mv {tmp_path}/told.new {tmp_path}/told"
    options = ("--notify-command", command, "--notify-on", "fail")
    ullage("run", *SMALL, "-n", "bad", *options, "--", "sh", "-c", "sleep 1; exit 3", code=3)
    listed = ullage("sessions", "-o", "json").stdout
    (notifier,) = [each["id"] for each in json.loads(listed) if each["after"] == ["fail:bad"]]
    ullage("logs", "-f", notifier)
    assert (tmp_path / "told").read_text() == "bad\n"
    assert (
        "give --notify or --notify-command too" in ullage("submit", "--notify-on", "end", "--", "true", code=2).stderr
    )


class Hook(BaseHTTPRequestHandler):
    """Refuses the first notice, and takes the second."""

    bodies: ClassVar[Queue[dict]] = Queue()
    seen: ClassVar[int] = 0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).seen += 1
        self.send_response(503 if self.seen == 1 else 204)
        self.end_headers()
        self.bodies.put(body | {"key": self.headers["Idempotency-Key"]})

    def log_message(self, *_: object) -> None:
        pass


def test_a_webhook_gets_the_notice_again_until_it_takes_it(ullage: Ullage, http: httpx2.Client) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as hook:
        Thread(target=hook.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{hook.server_port}/ended?token=secret"
        ullage("run", *SMALL, "-n", "hooked", "--notify", url, "--", "true")
        first, second = Hook.bodies.get(timeout=60), Hook.bodies.get(timeout=60)
        assert first == second
        assert (first["session"], first["outcome"], first["key"]) == ("hooked", "succeed", first["notice"])
        hook.shutdown()
    assert url not in http.get("/v1/events", params={"session": "hooked"}).text
    assert "write a URL such as" in ullage("submit", "--notify", "nowhere", "--", "true", code=2).stderr
