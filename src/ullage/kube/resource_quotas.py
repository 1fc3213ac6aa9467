"""ResourceQuotas of namespaces, as quotas that requests are judged by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.core.fleet import Usage
from ullage.kube.client.informer import Informer, News, Removed
from ullage.kube.client.objects import ResourceQuota
from ullage.kube.mirror import Trouble
from ullage.model.error import InvalidRequest
from ullage.service.cluster import Cluster
from ullage.wire.hami.resource_quota import Figures, figures_of, quota_of
from ullage.wire.hami.words import Words


class NamespaceQuotas:
    """Follows an informer of ResourceQuotas. One that is for some pods only (by scopes) counts nothing here.

    Where an amount cannot be read, what the namespace had last stays in force, and that is told.
    """

    def __init__(
        self, cluster: Cluster, quotas: Informer[ResourceQuota], words: Sequence[Words], trouble: Trouble
    ) -> None:
        self._cluster, self._words, self._trouble = cluster, words, trouble
        self._hard: dict[str, dict[str, dict[str, str]]] = {}
        quotas.subscribe(self._hear)

    def figures(self) -> Iterator[tuple[str, Figures]]:
        """How each namespace stands that has a quota, in the words of the first vendor."""
        books = self._cluster.allocator
        for namespace, quota in sorted(books.rules.quotas.quotas.items()):
            used = books.fleet.usage.get(namespace, Usage())
            for each in figures_of(quota, used.vram_limit, used.cores_ppm, self._words[0]):
                yield namespace, each

    def _hear(self, news: News[ResourceQuota]) -> None:
        found = news.last if isinstance(news, Removed) else news.new
        namespace, name = found.key
        there = self._hard.pop(namespace, {})
        there.pop(name, None)
        if not isinstance(news, Removed) and not found.spec.scopes and not found.spec.scope_selector:
            there[name] = found.spec.hard or {}
        if there:
            self._hard[namespace] = there
        try:
            self._cluster.set_quota(namespace, quota_of(there.values(), self._words))
        except InvalidRequest as error:
            self._trouble("ResourceQuota", "/".join(found.key), error)
