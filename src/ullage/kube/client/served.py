"""Whether an API server has a kind: custom resource definitions are added and removed."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from ullage.kube.client.api import KubeApi
from ullage.kube.client.errors import ApiForbidden
from ullage.kube.client.kinds import Kind
from ullage.model.error import NotFound


async def is_served(api: KubeApi, kind: Kind[Any]) -> bool:
    """Return whether the server has objects of a kind that may be read.

    Raises:
        Unavailable: it is unknown now.

    """
    try:
        async with aclosing(api.pages(kind, limit=1)) as pages:
            async for _ in pages:
                return True
    except (NotFound, ApiForbidden):
        return False
    return False
