"""Where real control planes are found, and who may do what there."""

from pathlib import Path

import pytest

from tests.kube import bodies
from tests.kube.conftest import SHORT
from tests.kube.control_plane import REQUIRED, ControlPlane, binary
from ullage.kube.client.changes import Create
from ullage.kube.client.connection import connect
from ullage.kube.client.errors import ApiForbidden
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import NODES


def test_what_is_not_installed_skips_or_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    monkeypatch.delenv(REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no etcd in"):
        binary("etcd")
    monkeypatch.setenv(REQUIRED, "1")
    with pytest.raises(pytest.fail.Exception, match="no etcd in"):
        binary("etcd")


def test_assets_come_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("assets", "path"):
        (tmp_path / folder).mkdir()
        program = tmp_path / folder / "etcd"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    assert binary("etcd") == str(tmp_path / "path" / "etcd")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    assert binary("etcd") == str(tmp_path / "assets" / "etcd")


@pytest.mark.anyio
async def test_a_user_without_a_role_may_do_nothing(real: ControlPlane) -> None:
    async with connect(real.user("stranger", "nobody")) as client:
        api = HttpKubeApi(client, SHORT)
        with pytest.raises(ApiForbidden, match='User "stranger" cannot list resource "nodes"'):
            [page async for page in api.pages(NODES)]
        with pytest.raises(ApiForbidden):
            await api.write(Create(NODES, bodies.node("n1")))
