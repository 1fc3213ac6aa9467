"""The API server in this process, for what writes there."""

from tests.kube.conftest import anyio_backend, api, client, server

__all__ = ["anyio_backend", "api", "client", "server"]
