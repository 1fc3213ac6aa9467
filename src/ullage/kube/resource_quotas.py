"""ResourceQuotas of namespaces, as quotas for requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ullage.core.books.usage import Usage
from ullage.kube.client.informer import Delta, Informer, Removed
from ullage.kube.client.objects import ResourceQuota
from ullage.kube.controller import OnError
from ullage.service.cluster import Cluster
from ullage.wire.hami.resource_quota import NamespaceFigures, figures_of, quota_of, readable
from ullage.wire.hami.vendor import HamiVendor


@dataclass(frozen=True, slots=True)
class _Amounts:
    """The amounts of one quota in force, and why its newest amounts are not; "" if they are."""

    hard: dict[str, str]
    fault: str = ""


class ResourceQuotas:
    """Follows an informer of ResourceQuotas. A quota with scopes applies to some pods only and is ignored.

    An unreadable amount is reported and named in refusals, and the last readable amount stays in force. If there was
    none, the amount allows nothing. Other quotas of the namespace are not affected.
    """

    def __init__(
        self, cluster: Cluster, quotas: Informer[ResourceQuota], words: Sequence[HamiVendor], on_error: OnError
    ) -> None:
        self._cluster, self._words, self._on_error = cluster, words, on_error
        self._hard: dict[str, dict[str, _Amounts]] = {}
        quotas.subscribe(self._on_quota)

    def figures(self) -> Iterator[tuple[str, NamespaceFigures]]:
        """Yield the usage and limits of each namespace with a quota, in the resource names of the first vendor."""
        books = self._cluster.allocator
        for namespace, quota in sorted(books.rules.quotas.quotas.items()):
            used = books.fleet.usage.get(namespace, Usage())
            for each in figures_of(quota, used.vram_limit, used.cores_ppm, self._words[0]):
                yield namespace, each

    def _on_quota(self, delta: Delta[ResourceQuota]) -> None:
        found = delta.last if isinstance(delta, Removed) else delta.new
        namespace, name = found.key
        there = self._hard.pop(namespace, {})
        last = there.pop(name, None)
        if not isinstance(delta, Removed) and not found.spec.scopes and not found.spec.scope_selector:
            there[name] = self._read(found, last)
        if there:
            self._hard[namespace] = there
        faults = "; ".join(amounts.fault for amounts in there.values() if amounts.fault)
        self._cluster.set_quota(namespace, quota_of((each.hard for each in there.values()), self._words), faults)

    def _read(self, found: ResourceQuota, last: _Amounts | None) -> _Amounts:
        """Return the amounts of a quota that are in force. Report each amount that cannot be parsed."""
        hard, errors = readable(found.spec.hard or {}, self._words)
        for error in errors:
            self._on_error("ResourceQuota", "/".join(found.key), error)
        fault = "; ".join(f"ResourceQuota {found.metadata.name} cannot be read: {each.message}" for each in errors)
        return _Amounts(hard if last is None or not errors else last.hard, fault)
