"""Settings from the environment, and the source of each."""

import json
from pathlib import Path

import pytest
from docs.setting_variables import MODULE, variables_text

from ullage.bootstrap.settings import Settings, read_settings
from ullage.bootstrap.settings_sources import leaves
from ullage.cli.main import main
from ullage.model.error import InvalidRequest
from ullage.model.variables import KNOWN, unknown_variables


def test_the_command_line_knows_the_variable_of_every_setting():
    assert MODULE.read_text() == variables_text(), "run make docs"
    names = [leaf.variable for leaf in leaves(Settings)]
    assert len(names) == len(set(names))
    assert set(names) <= KNOWN
    assert unknown_variables(dict.fromkeys(names, "")) == []


@pytest.mark.parametrize(
    ("variable", "text", "read", "value"),
    [
        ("ULLAGE_SERVER_HOST", "::1", lambda s: s.server.host, "::1"),
        ("ULLAGE_SERVER_PORT", "8080", lambda s: s.server.port, 8080),
        ("ULLAGE_NODE_GPUS", "4", lambda s: s.node.gpus, 4),
        ("ULLAGE_NODE_GPUS", "0,GPU-1", lambda s: s.node.gpus, ["0", "GPU-1"]),
        ("ULLAGE_NODE_NAME", "007", lambda s: s.node.name, "007"),
        ("ULLAGE_NODE_LABELS", '{rack = "r1"}', lambda s: s.node.labels, {"rack": "r1"}),
        ("ULLAGE_NODE_CARD", '[{model = "A100"}]', lambda s: s.node.card[0].model, "A100"),
        ("ULLAGE_POLICY_RECLAIM_GRACE_S", "5", lambda s: s.policy.reclaim_grace_s, 5.0),
        ("ULLAGE_REQUESTS_PREEMPT_CLUSTER_WIDE", "false", lambda s: s.requests_.preempt_cluster_wide, False),
        ("ULLAGE_QUEUES", "{lab = {weight = 2}}", lambda s: s.queues["lab"].weight, 2),
        ("ULLAGE_RESREQ", "cpu=2", lambda s: s.resreq, "cpu=2"),
        ("ULLAGE_KUBE_BINDINGS_SCOPE", "labelled", lambda s: s.kube.bindings.scope, "labelled"),
        ("ULLAGE_PROFILES", "a.toml", lambda s: s.profiles, [str(Path.cwd() / "a.toml")]),
    ],
)
def test_a_variable_sets_its_setting(variable, text, read, value):
    assert read(read_settings(None, {variable: text})) == value


def test_the_environment_comes_before_the_file_and_leaves_the_rest_of_it(tmp_path):
    file = tmp_path / "ullage.toml"
    file.write_text('[server]\nport = 1\nhost = "a"\n[queues.lab]\nweight = 3\n')
    read = read_settings(file, {"ULLAGE_SERVER_PORT": "2", "PATH": "/bin"})
    assert (read.server.port, read.server.host, read.queues["lab"].weight) == (2, "a", 3)


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("ULLAGE_SERVER_PORT", "http", "ULLAGE_SERVER_PORT: 'http' is not valid: Expected a whole number, got a text"),
        ("ULLAGE_NODE_SHARING", "mpss", "did you mean mps\\? choose one of none, mps, hami"),
        ("ULLAGE_QUEUES", "{lab = {wait = 2}}", "unknown field `wait`; did you mean weight\\?"),
        ("ULLAGE_POLICY_RECLAIM_GRACE_S", "nan", "nan"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_variable(variable, text, message):
    with pytest.raises(InvalidRequest, match=message):
        read_settings(None, {variable: text})


def test_the_link_of_a_service_to_a_pod_is_no_setting():
    assert read_settings(None, {"ULLAGE_SERVER_PORT": "tcp://10.0.0.1:80"}).server.port is None


def test_settings_are_listed_with_their_sources(home, monkeypatch, capsys):
    (home / "ullage.toml").write_text('resreq = "cpu=1"\n[server]\nport = 1\n[node]\ngpus = 3\n')
    monkeypatch.setenv("ULLAGE_NODE_GPUS", "2")
    monkeypatch.setenv("ULLAGE_POLICY_ORDER", "fifo")
    assert main(["up", "--port", "99", "--show-settings", "-o", "json"]) == 2  # an option of listings
    capsys.readouterr()
    assert main(["up", "--port", "99", "--show-settings"]) == 0
    rows = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert rows["server.port"] == ["99", "command", "line"]
    assert rows["node.gpus"] == ["2", "ULLAGE_NODE_GPUS"]
    assert rows["server.host"] == ["127.0.0.1", "default"]
    assert main(["settings", "-o", "json"]) == 0
    found = {each["name"]: (each["value"], each["source"]) for each in json.loads(capsys.readouterr().out)}
    assert found == {
        "resreq": ("cpu=1", str(home / "ullage.toml")),
        "server.port": (1, str(home / "ullage.toml")),
        "node.gpus": (2, "ULLAGE_NODE_GPUS"),
        "policy.order": ("fifo", "ULLAGE_POLICY_ORDER"),
    }


def test_wrong_settings_are_refused_where_they_are_listed(home, monkeypatch, capsys):
    monkeypatch.setenv("ULLAGE_SERVER_PORT", "http")
    assert main(["settings"]) == 2
    assert "ULLAGE_SERVER_PORT: 'http' is not valid" in capsys.readouterr().err
