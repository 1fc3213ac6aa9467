"""The configuration with which a kubelet runs, flags included: its `configz`, through the API server."""

from __future__ import annotations

from ullage.kube.client.api import KubeApi
from ullage.kube.client.kinds import Kind
from ullage.kube.client.objects import Metadata, Object
from ullage.wire.document import Document


class Configz(Object, frozen=True):
    """The answer, which has no metadata."""

    metadata: Metadata = Metadata()


async def read_configz(api: KubeApi, node: str) -> Document:
    """Return the answer of the kubelet of a node. It needs the right to get `nodes/proxy`.

    Raises:
        UllageError: it may not be read, or the kubelet does not answer.

    """
    kind = Kind("", "v1", "Configz", f"nodes/{node}/proxy", type=Configz, namespaced=False)
    return (await api.get(kind, "configz")).document
