"""ResourceQuotas of namespaces, as quotas for requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ullage.core.books.usage import Usage
from ullage.kube.client.informer import Delta, Informer, Removed
from ullage.kube.client.objects import ResourceQuota
from ullage.kube.controller import OnError
from ullage.service.cluster import Cluster
from ullage.wire.hami.resource_quota import NamespaceFigures, figures_of, quota_name, quota_of, readable
from ullage.wire.vendors.family import Family


@dataclass(frozen=True, slots=True)
class _Amounts:
    """The amounts of one quota in force for one family, and why its newest amounts are not; "" if they are."""

    hard: dict[str, str]
    fault: str = ""


class ResourceQuotas:
    """Follows an informer of ResourceQuotas. A quota with scopes applies to some pods only and is ignored.

    An unreadable amount is reported and named in refusals, and the last readable amount stays in force. If there was
    none, the amount allows nothing. Other quotas of the namespace, and other families, are not affected.
    """

    def __init__(
        self, cluster: Cluster, quotas: Informer[ResourceQuota], families: Sequence[Family], on_error: OnError
    ) -> None:
        self._cluster, self._on_error = cluster, on_error
        self._families = {
            f"limits.{resource}": family
            for family in families
            for resource in (family.resources.memory, family.resources.cores)
            if resource
        }
        self._hard: dict[tuple[str, Family], dict[str, _Amounts]] = {}
        """The amounts of each quota by name, for each namespace and family that has any."""
        quotas.subscribe(self._on_quota)

    def figures(self) -> Iterator[tuple[str, NamespaceFigures]]:
        """Yield the usage and limits of each namespace with a quota, in the resources of the family."""
        books = self._cluster.allocator
        for namespace, family in sorted(self._hard, key=lambda each: (each[0], each[1].name)):
            name = quota_name(namespace, family.name)
            quota, used = books.rules.quotas.quotas.get(name), books.fleet.usage.get(name, Usage())
            for each in () if quota is None else figures_of(quota, used.vram_limit, used.cores_ppm, family):
                yield namespace, each

    def _on_quota(self, delta: Delta[ResourceQuota]) -> None:
        found = delta.last if isinstance(delta, Removed) else delta.new
        namespace, name = found.key
        hard = found.spec.hard or {}
        if isinstance(delta, Removed) or found.spec.scopes or found.spec.scope_selector:
            hard = {}
        limited = {self._families[key] for key in hard if key in self._families}
        before = {family for where, family in self._hard if where == namespace and name in self._hard[where, family]}
        for family in sorted(limited | before, key=lambda family: family.name):
            there = self._hard.setdefault((namespace, family), {})
            last = there.pop(name, None)
            if family in limited:
                own = {key: amount for key, amount in hard.items() if self._families.get(key) is family}
                there[name] = self._read(found, family, own, last)
            quota = quota_of((each.hard for each in there.values()), family)
            faults = "; ".join(each.fault for each in there.values() if each.fault)
            self._cluster.quotas.set(quota_name(namespace, family.name), quota, faults)
            if not there:
                del self._hard[namespace, family]

    def _read(self, found: ResourceQuota, family: Family, own: dict[str, str], last: _Amounts | None) -> _Amounts:
        """Return the amounts of a quota that are in force. Report each amount that cannot be parsed."""
        hard, errors = readable(own, family)
        for error in errors:
            self._on_error("ResourceQuota", "/".join(found.key), error)
        fault = "; ".join(f"ResourceQuota {found.metadata.name} cannot be read: {each.message}" for each in errors)
        return _Amounts(hard if last is None or not errors else last.hard, fault)
