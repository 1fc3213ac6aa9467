"""A server for other machines speaks HTTPS, and takes tokens of users in no other way."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import httpx2
import pytest
from tests.system.live_server import LiveServer

from ullage.cli.main import main
from ullage.model.error import InvalidRequest


def own_address() -> str:
    """Return an address of this machine that is not the loopback's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has the loopback address only")
        address: str = probe.getsockname()[0]
    if address.startswith("127."):
        pytest.skip("this machine has the loopback address only")
    return address


def test_a_client_verifies_the_certificate_and_the_socket_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl here")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command, *names, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    home = tmp_path / "home"
    home.mkdir()
    (home / "ullage.toml").write_text(f'[server]\ncert = "{cert}"\nkey = "{key}"\n')
    with LiveServer(home) as server:
        assert server.url.startswith("https://127.0.0.1:")
        monkeypatch.setenv("ULLAGE_HOME", str(home))
        assert main(["whoami"]) == 0  # by the socket
        assert "(admin, by token file)" in capsys.readouterr().out
        monkeypatch.setenv("ULLAGE_ENDPOINT", server.url)
        monkeypatch.setenv("ULLAGE_TOKEN", server.token)
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        assert main(["whoami"]) == 2
        shown = capsys.readouterr().err
        assert "is not trusted" in shown
        assert "SSL_CERT_FILE" in shown
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        assert main(["whoami"]) == 0
        monkeypatch.setenv("ULLAGE_ENDPOINT", server.url.replace("https", "http"))
        assert main(["whoami"]) == 2
        text = "this port speaks HTTPS, and the request is plain HTTP: write https://"
        assert text in capsys.readouterr().err
        for size in (0, 900_000):  # a foreign client gets the answer also while it sends
            answer = httpx2.post(server.url.replace("https", "http"), content=b"x" * size)
            assert (answer.status_code, answer.json()["code"]) == (400, "https-needed")


def test_a_token_of_a_user_is_not_taken_in_plain_text_from_another_machine(tmp_path: Path) -> None:
    address = own_address()
    home = tmp_path / "home"
    home.mkdir()
    (home / "ullage.toml").write_text(f'[server]\nhost = "{address}"\n[node]\ngpus = 4\n')
    with LiveServer(home) as server, server.client() as admin:
        secret = admin.post("/v1/tokens", json={"user": "ann"}).json()["token"]
        answer = admin.get("/v1/me", headers={"Authorization": f"Bearer {secret}"})
        assert (answer.status_code, answer.json()["code"]) == (403, "plain-http")
        assert admin.get("/v1/me").status_code == 200
        server.stop()
        (home / "ullage.toml").write_text(f'[server]\nhost = "{address}"\n[users]\nplain_tokens = true\n')
        server.start()
        with server.client() as again:
            assert again.get("/v1/me", headers={"Authorization": f"Bearer {secret}"}).json()["user"] == "ann"


def test_a_certificate_without_its_key_is_refused() -> None:
    from ullage.bootstrap.settings import ServerSection  # noqa: PLC0415

    with pytest.raises(InvalidRequest, match=r"write both server.cert and server.key"):
        ServerSection(cert="/cert.pem").tls()
