"""Which server is meant, and what happens if there is none."""

import subprocess

import pytest

from tests.fake_api import leave_files
from ullage.client import endpoint, local
from ullage.model.error import InvalidRequest, Unavailable


def test_the_files_of_a_local_server_are_enough(home, hidden_fake):
    leave_files(home, hidden_fake.url)
    api = local.reach(start=False)
    assert api.server().version == "0.1.0"
    api.transport.close()


def test_what_the_caller_says_goes_before_the_environment(monkeypatch, home):
    monkeypatch.setenv("ULLAGE_ENDPOINT", "http://from-environment")
    monkeypatch.setenv("ULLAGE_TOKEN", "t")
    assert endpoint.given() == endpoint.Endpoint("http://from-environment", "t")
    assert endpoint.given("http://from-caller", "u") == endpoint.Endpoint("http://from-caller", "u")


def test_the_token_of_the_local_server_is_not_sent_to_another_one(home):
    leave_files(home, "http://127.0.0.1:1")
    assert endpoint.given("http://elsewhere") == endpoint.Endpoint("http://elsewhere", None)


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://host", "unix:/run"])
def test_an_address_that_is_no_url_is_refused(home, url):
    with pytest.raises(InvalidRequest, match="endpoint"):
        endpoint.given(url)


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
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        local.reach("http://127.0.0.1:1", start=True)


def test_without_a_server_one_is_started(monkeypatch, home, hidden_fake, capsys):
    def up(command, **_):
        leave_files(home, hidden_fake.url)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", up)
    local.reach(start=True).transport.close()
    assert capsys.readouterr().err == f"ullage: started a local server at {hidden_fake.url}; `ullage down` ends it\n"


def test_a_server_that_does_not_start_says_why(monkeypatch, home):
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
