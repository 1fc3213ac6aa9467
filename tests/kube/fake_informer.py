"""A fake informer: it delivers objects to handlers without an API."""

from __future__ import annotations

import itertools
import json
from typing import Any, Generic

from ullage.kube.client.api import T
from ullage.kube.client.informer import Added, Changed, Handler, Removed
from ullage.kube.client.kinds import Kind

_VERSIONS = itertools.count(1)


class FakeInformer(Generic[T]):
    """Stands for an informer of one kind; `put` and `drop` are what its watch hears."""

    def __init__(self, kind: Kind[T]) -> None:
        self._kind = kind
        self._handlers: list[Handler[T]] = []
        self.objects: dict[tuple[str, str], T] = {}

    def subscribe(self, handler: Handler[T]) -> None:
        for item in self.objects.values():
            handler(Added(item))
        self._handlers.append(handler)

    def put(self, body: dict[str, Any], *, created: bool = False) -> T:
        """As the server has it now; the version is a new one. `created`: a watch reports its creation."""
        metadata = {"uid": f"uid-{body['metadata']['name']}", "resourceVersion": str(next(_VERSIONS))}
        item = self._kind.read(json.dumps({**body, "metadata": metadata | body["metadata"]}).encode())
        old = self.objects.get(item.key)
        self.objects[item.key] = item
        for handler in self._handlers:
            handler(Added(item, created) if old is None else Changed(old, item))
        return item

    def drop(self, name: str, namespace: str = "") -> None:
        last = self.objects.pop((namespace, name))
        for handler in self._handlers:
            handler(Removed(last))

    def document(self, name: str, namespace: str = "") -> dict[str, Any]:
        return dict(self.objects[namespace, name].document)
