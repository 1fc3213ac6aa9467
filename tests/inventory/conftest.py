"""The API server in this process, for tests that write to it."""

import pytest
from tests.kube.conftest import anyio_backend, api, client, server

__all__ = ["anyio_backend", "api", "client", "server"]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine answers late; nothing here is about that unless a test says so."""
    monkeypatch.setattr("ullage.kube.exporter.grpc.CONNECT_S", 60.0)
    monkeypatch.setattr("ullage.kube.exporter.grpc.ANSWER_S", 60.0)
