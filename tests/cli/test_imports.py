"""What a verb loads: the time of a short command is that of its imports."""

import subprocess
import sys

import pytest

from tests.fake_api import FakeSession
from ullage.wire.session import CreateSession

_CODE = """
import sys
from ullage.cli.main import main
code = main(sys.argv[1:])
sys.stderr.write("\\n".join(sys.modules))
sys.exit(code)
"""
HEAVY = ("numpy", "numba", "sqlalchemy", "rich", "cloudpickle", "yaml", "csv", "asyncio", "subprocess", "concurrent")
OF_REQUESTS = ("ullage.model.request", "ullage.model.topology", "ullage.model.alignment", "ullage.wire.node_topology")


def loaded(*words):
    done = subprocess.run([sys.executable, "-c", _CODE, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split("\n"))


@pytest.mark.parametrize("verb", ["queue", "sessions", "nodes", "gpus", "executors", "queues", "apps"])
def test_a_listing_loads_nothing_heavy(fake, verb):
    assert not loaded(verb).intersection(HEAVY)


@pytest.mark.parametrize("line", ["queue", "sessions", "show session s", "submit -- true", "--help"])
def test_what_people_type_often_loads_only_what_it_needs(fake, line):
    fake.sessions["s"] = FakeSession(CreateSession(application="command"), "s")
    found = loaded(*line.split())
    unneeded = {"dataclasses", "inspect", "typing_extensions", "ullage.cli.slurm", "ullage.client.allocations"}
    assert not found & {*unneeded, *HEAVY, *OF_REQUESTS}


def test_submit_loads_nothing_to_wait_and_to_follow_with(fake):
    unneeded = {"ullage.cli.run", "ullage.cli.logs", "ullage.cli.interactive", "ullage.client.terminal"}
    assert not loaded("submit", "--", "true") & unneeded


def test_a_later_import_finds_typing_extensions():
    code = "from ullage.cli.loading import import_msgspec; import_msgspec(); import typing_extensions, msgspec"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_help_reaches_no_server(fake):
    assert not loaded("--help") & {"msgspec", "http.client", "ullage.client.api"}


@pytest.mark.parametrize("verb", ["queue", "sessions", "apps"])
def test_a_listing_of_sessions_loads_no_model_of_machines_and_requests(fake, verb):
    assert not loaded(verb).intersection(OF_REQUESTS)


OF_OTHERS = ("ullage.model.claim", "ullage.model.queue", "ullage.model.history", "ullage.model.application")
OF_SHARES = ("ullage.model.part", "ullage.model.quota", "ullage.wire.allocation", "ullage.client.client")


@pytest.mark.parametrize(
    "line", ["nodes", "gpus", "queues", "events", "history --help", "usage --help", "cancel --help", "submit --help"]
)
def test_a_verb_loads_no_model_that_only_a_server_or_a_request_needs(fake, line):
    assert not loaded(*line.split()).intersection((*OF_REQUESTS, *OF_OTHERS, *OF_SHARES, *HEAVY))


@pytest.mark.parametrize("verb", ["exec", "attach", "logs"])
def test_a_verb_at_running_work_loads_no_model_of_machines_and_requests(fake, verb):
    assert not loaded(verb, "--help").intersection((*OF_REQUESTS, *HEAVY))


def test_a_verb_loads_no_other_verb(fake):
    found = {name for name in loaded("queue") if name.startswith("ullage.cli.")}
    assert not found & {
        "ullage.cli.run",
        "ullage.cli.fleet",
        "ullage.cli.watching",
        "ullage.cli.why",
        "ullage.cli.server",
    }
