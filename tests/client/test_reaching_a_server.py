"""The choice of the server, and the errors without one."""

import json
import os
import stat
import subprocess

import pytest

import ullage
from tests.fake_api import FakeApi, leave_files, server_file
from ullage.client import endpoint, local, local_socket
from ullage.client.transport import Transport
from ullage.model.error import Forbidden, InvalidRequest, Unavailable


def test_the_files_of_a_local_server_are_enough(home, hidden_fake):
    leave_files(home, hidden_fake)
    api = local.reach(start=False)
    assert api.server().version == "0.1.0"
    api.transport.close()


def test_arguments_override_the_environment(monkeypatch, home):
    monkeypatch.setenv("ULLAGE_ENDPOINT", "https://from-environment")
    monkeypatch.setenv("ULLAGE_TOKEN", "t")
    assert endpoint.configured() == endpoint.ServerEndpoint("https://from-environment", "t")
    assert endpoint.configured("https://from-caller", "u") == endpoint.ServerEndpoint("https://from-caller", "u")


def test_the_token_of_the_local_server_is_not_sent_to_another_one(home):
    leave_files(home, "http://127.0.0.1:1")
    assert endpoint.configured("http://elsewhere") == endpoint.ServerEndpoint("http://elsewhere", None)


@pytest.mark.parametrize(
    "url", ["http://elsewhere:7480", "http://10.1.2.3", "http://127.evil.example", "http://[fe80::1]:1"]
)
def test_a_token_that_goes_to_another_machine_in_plain_text_is_warned_of(home, url):
    with pytest.warns(UserWarning, match=r"the token goes to http://.* in plain text, .*; use https"):
        assert endpoint.configured(url, "t").token == "t"


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("https://elsewhere", "t"),
        ("http://elsewhere", None),
        ("http://localhost:1", "t"),
        ("http://127.9.8.7:1", "t"),
        ("http://[::1]:1", "t"),
        ("http://a.localhost", "t"),
    ],
)
def test_a_token_over_an_encrypted_or_local_connection_gives_no_warning(home, url, token):
    assert endpoint.configured(url, token) == endpoint.ServerEndpoint(url, token)


def test_an_address_of_https_where_a_server_speaks_http_is_named(hidden_fake):
    url = "https" + hidden_fake.url.removeprefix("http")
    with pytest.raises(InvalidRequest, match=f"does not use TLS .*; try {hidden_fake.url}"):
        local.reach(url, "t", start=False)


@pytest.mark.parametrize("url", ["http://host:8080/v1", "https://host/?q=1", "http://host#top"])
def test_an_address_with_more_than_a_host_and_a_port_is_refused(url):
    with pytest.raises(InvalidRequest, match=r"write the address alone: https?://host"):
        endpoint.configured(url)


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://host", "unix:/run", 5])
def test_an_address_that_is_no_url_is_refused(home, url):
    with pytest.raises(InvalidRequest, match="endpoint"):
        endpoint.configured(url)


def test_the_home_follows_the_xdg_directories(monkeypatch, tmp_path):
    monkeypatch.delenv("ULLAGE_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert endpoint.home() == tmp_path / "ullage"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert endpoint.home() == tmp_path / ".local" / "share" / "ullage"


def test_a_file_that_is_half_written_is_no_server(home):
    (home / "server.json").write_text('{"url": "http://12')
    assert endpoint.local() is None


def test_a_named_server_that_does_not_answer_is_unavailable(home):
    with pytest.raises(Unavailable, match=r"no server answers at http://127\.0\.0\.1:1: Connection refused"):
        local.reach("http://127.0.0.1:1", start=True)


def test_without_a_server_one_is_started(monkeypatch, home, hidden_fake, capsys):
    def up(command, **_):
        leave_files(home, hidden_fake)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", up)
    local.reach(start=True).transport.close()
    assert capsys.readouterr().err == f"ullage: started a local server at {hidden_fake.url}; `ullage down` ends it\n"


def test_inside_an_executor_no_server_is_started(monkeypatch, home):
    monkeypatch.setenv("ULLAGE_EXECUTOR", "e-1")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a server was started"))
    with pytest.raises(Unavailable, match=r"none is started inside an executor \(e-1\): keep ULLAGE_HOME"):
        ullage.connect()


def test_beside_a_service_that_is_down_no_server_is_started(monkeypatch, tmp_path):
    monkeypatch.delenv("ULLAGE_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("ULLAGE_SYSTEM", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a server was started"))
    with pytest.raises(Unavailable, match="no second server is started beside it") as caught:
        local.reach(start=True)
    assert caught.value.code == "service-down"
    with pytest.raises(Unavailable, match="the service of this machine does not answer"):
        local.reach(start=False)


def test_the_service_of_a_machine_is_known_by_its_unit_too(monkeypatch, tmp_path):
    monkeypatch.delenv("ULLAGE_HOME", raising=False)
    monkeypatch.delenv("ULLAGE_SYSTEM", raising=False)
    monkeypatch.setattr(endpoint, "SYSTEM", str(tmp_path / "run"))
    monkeypatch.setattr(endpoint, "UNIT", str(tmp_path / "ullage.service"))
    assert endpoint.silent_service() is None
    (tmp_path / "ullage.service").touch()
    assert endpoint.silent_service() == str(tmp_path / "run")
    monkeypatch.setenv("ULLAGE_HOME", str(tmp_path))
    assert endpoint.silent_service() is None


def test_a_failed_start_of_a_server_has_its_reason(monkeypatch, home):
    monkeypatch.setattr(subprocess, "run", lambda c, **_: subprocess.CompletedProcess(c, 69, "", "no disk"))
    with pytest.raises(Unavailable, match="no disk"):
        local.reach(start=True)


def test_without_the_server_extra_nothing_is_started(monkeypatch, home):
    monkeypatch.setattr(local, "SERVER_PACKAGES", ("no_such_package",))
    with pytest.raises(Unavailable, match=r"pip install 'ullage\[server\]'"):
        local.reach(start=True)


def test_looking_does_not_start_a_server(home):
    with pytest.raises(Unavailable, match="no server is running"):
        local.reach(start=False)


def test_the_file_of_a_server_that_is_gone_is_not_believed(home, hidden_fake):
    leave_files(home, hidden_fake)
    file = json.loads((home / "server.json").read_text())
    for gone in ({"pid": 2**22 + 1}, {"started": file["started"] + 1}):  # its number may be another process by now
        (home / "server.json").write_text(json.dumps(file | gone))
        assert endpoint.local() is None
    assert hidden_fake.seen == []


def test_the_token_goes_to_the_socket_of_the_home_and_never_to_the_port(home, hidden_fake):
    stranger = FakeApi()
    leave_files(home, hidden_fake)
    (home / "server.json").write_text(server_file(stranger.url, os.getpid()))  # the port is another one's by now
    api = local.reach(start=False)
    api.server()
    api.transport.close()
    stranger.close()
    assert ("GET", "/v1/server") in hidden_fake.seen
    assert stranger.seen == []


def test_a_server_of_another_user_gets_no_token(home, hidden_fake, monkeypatch):
    leave_files(home, hidden_fake)
    monkeypatch.setattr(local_socket, "peer_of", lambda _: local_socket.Peer(1, home.stat().st_uid + 4711))
    transport = Transport(endpoint.local)
    with pytest.raises(Forbidden, match="token is not sent") as caught:
        transport.request("GET", "/v1/server")
    assert caught.value.code == "not-the-owner"
    assert hidden_fake.seen == []


def test_a_home_with_a_long_path_is_reached(home, hidden_fake, monkeypatch):
    deep = home.joinpath(*["directory" * 10] * 3)
    deep.mkdir(parents=True)
    monkeypatch.setenv("ULLAGE_HOME", str(deep))
    leave_files(deep, hidden_fake)
    local.reach(start=False).transport.close()
    assert stat.S_IMODE((deep / "server.sock").stat().st_mode) == 0o600


def test_https_to_a_server_without_tls_names_the_cause(hidden_fake):
    url = hidden_fake.url.replace("http:", "https:")
    transport = Transport(lambda: endpoint.ServerEndpoint(url))
    with pytest.raises(InvalidRequest, match="does not use TLS") as caught:
        transport.request("GET", "/v1/server")
    assert caught.value.code == "tls-failed"
    assert hidden_fake.url in caught.value.message


def test_a_server_is_asked_once_whether_it_is_ready_also_where_one_would_be_started(home, hidden_fake):
    leave_files(home, hidden_fake)
    api = local.reach(start=True)
    api.server()
    assert hidden_fake.seen == [("GET", "/readyz"), ("GET", "/v1/server")]
    api.transport.close()
