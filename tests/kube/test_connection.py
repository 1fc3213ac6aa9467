"""How an API server is reached: kubeconfigs, certificates, tokens."""

import asyncio
import json
import ssl
from pathlib import Path

import pytest
import trustme

from tests.kube import bodies
from tests.kube.api_server import TOKEN, ApiServer
from tests.kube.conftest import SHORT
from tests.kube.control_plane import kubeconfig
from ullage.kube.client.changes import Create
from ullage.kube.client.connection import connect
from ullage.kube.client.errors import ApiForbidden, Unreachable
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import NODES
from ullage.model.error import InvalidRequest

pytestmark = pytest.mark.anyio


async def test_a_token_that_was_renewed_is_read_again(tmp_path: Path, server: ApiServer) -> None:
    (tmp_path / "token").write_text("an old token")
    place = tmp_path / "kubeconfig"
    place.write_text(json.dumps(kubeconfig(server.url, {}, {"tokenFile": str(tmp_path / "token")})))
    async with connect(place) as client:
        api = HttpKubeApi(client, SHORT)
        with pytest.raises(ApiForbidden):
            await api.get(NODES, "n1")
        (tmp_path / "token").write_text(f"{TOKEN}\n")
        await api.write(Create(NODES, bodies.node("n1")))


async def test_calls_that_are_refused_at_once_all_use_the_renewed_token(tmp_path: Path, server: ApiServer) -> None:
    server.do(lambda: server.rules.create("nodes", "", bodies.node("n1")))
    (tmp_path / "token").write_text("an old token")
    place = tmp_path / "kubeconfig"
    place.write_text(json.dumps(kubeconfig(server.url, {}, {"tokenFile": str(tmp_path / "token")})))
    async with connect(place) as client:
        api = HttpKubeApi(client, SHORT)
        with pytest.raises(ApiForbidden):
            await api.get(NODES, "n1")
        (tmp_path / "token").write_text(TOKEN)
        found = await asyncio.gather(*(api.get(NODES, "n1") for _ in range(4)))
    assert [node.metadata.name for node in found] == ["n1"] * 4


async def test_only_the_named_authority_is_trusted(tmp_path: Path) -> None:
    ours, other = trustme.CA(), trustme.CA()
    ours.cert_pem.write_to_path(tmp_path / "ours.pem")
    other.cert_pem.write_to_path(tmp_path / "other.pem")
    secured = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ours.issue_cert("127.0.0.1").configure_cert(secured)
    body = json.dumps(bodies.node("n1")).encode()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(handler, "127.0.0.1", 0, ssl=secured) as listener:
        url = f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        for name, trusted in (("ours.pem", True), ("other.pem", False)):
            (tmp_path / "config").write_text(json.dumps(kubeconfig(url, {"certificate-authority": name}, {})))
            async with connect(tmp_path / "config") as client:
                got = await asyncio.gather(HttpKubeApi(client).get(NODES, "n1"), return_exceptions=True)
                assert isinstance(got[0], Unreachable) != trusted, got


@pytest.mark.parametrize(
    "text",
    [
        "",
        "][",
        "{}",
        "clusters: 7",
        json.dumps(kubeconfig("http://x", {}, {}) | {"current-context": "none"}),
        json.dumps(kubeconfig("http://x", {}, {}) | {"clusters": []}),
        json.dumps(kubeconfig("http://x", {"certificate-authority": "none.pem"}, {})),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "kubeconfig").write_text(text)
    with pytest.raises(InvalidRequest) as raised:
        connect(tmp_path / "kubeconfig")
    assert raised.value.code == "kube-config"


def test_without_any_kubeconfig_the_reason_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(InvalidRequest, match="the environment cannot be used"):
        connect()
