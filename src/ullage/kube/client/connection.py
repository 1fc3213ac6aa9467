"""Connects to an API server with a kubeconfig, or with the service account of a pod."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import yaml
from lightkube.config.client_adapter import user_auth, verify_cluster
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError

from ullage import __version__
from ullage.model.error import InvalidRequest

CONNECT_S = 5.0
_KEEP_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000),
)
"""A peer that vanished is noticed within a minute, also on a watch that waits."""


def connect(kubeconfig: Path | None = None, context: str | None = None) -> httpx2.AsyncClient:
    """Return a client of one API server, with its address, certificates and credentials. Proxies are not used.

    Without a path: the service account of this pod, else the file in KUBECONFIG, else the user's kubeconfig. A token
    that is kept in a file is read again when the server no longer accepts the old one.

    Raises:
        InvalidRequest: (`kube-config`) the configuration cannot be read, or is incomplete.

    """
    with _usable(kubeconfig):
        return _client(_config(kubeconfig, context))


def namespace_of(kubeconfig: Path | None = None, context: str | None = None) -> str:
    """Return the namespace of a context, or that of this pod; `default` if none is named.

    Raises:
        InvalidRequest: as `connect`.

    """
    with _usable(kubeconfig):
        return _config(kubeconfig, context).namespace or "default"


@contextmanager
def _usable(kubeconfig: Path | None) -> Iterator[None]:
    """Name the configuration in errors about it."""
    try:
        yield
    except (ConfigError, AttributeError, LookupError, OSError, TypeError, ValueError, yaml.YAMLError) as error:
        where = "the environment" if kubeconfig is None else str(kubeconfig)
        said = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        if isinstance(error, (AttributeError, TypeError)):
            said = "a part of it, or all, is not of the form of a kubeconfig"
        message = f"kubeconfig: {where} cannot be used: {said}"
        raise InvalidRequest(message, code="kube-config", field="kubeconfig") from None


def _config(kubeconfig: Path | None, context: str | None) -> SingleConfig:
    found = KubeConfig.from_env() if kubeconfig is None else KubeConfig.from_file(kubeconfig)
    config = found.get(context)
    assert config is not None, "only a default that is None comes back as None"
    return config


def _client(config: SingleConfig) -> httpx2.AsyncClient:
    user = config.user or User()
    secured = verify_cluster(config.cluster, user, config.abs_file, trust_env=False)
    return httpx2.AsyncClient(
        base_url=config.cluster.server,
        auth=user_auth(user),
        transport=httpx2.AsyncHTTPTransport(verify=secured, socket_options=_KEEP_ALIVE),
        headers={"Accept": "application/json", "User-Agent": f"ullage/{__version__}"},
        trust_env=False,
    )
