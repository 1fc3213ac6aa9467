"""What the webhook asks of the cluster: which namespaces are left alone, and what the quotas say."""

from __future__ import annotations

from collections.abc import Callable

from ullage.core.sentences import reject_text
from ullage.kube.client.informer import Informer
from ullage.kube.client.objects import Namespace
from ullage.kube.webhook.webhook import OverQuota
from ullage.service.cluster import Cluster
from ullage.wire.hami.admission import ignores
from ullage.wire.pod import DOMAIN, PodRequest
from ullage.wire.pod.gate import gate_of


def over_quota(cluster: Cluster) -> OverQuota:
    """What the quotas of the cluster say against a pod."""

    def told(asked: PodRequest) -> str:
        refused = cluster.over_quota(asked.requirement, asked.claim)
        return "" if refused is None else f"{refused.code.value}: {reject_text(refused)}"

    return told


def named_queue(namespaces: Informer[Namespace], domain: str = DOMAIN) -> Callable[[str], str]:
    """The queue that a namespace names in a label; "" if it names none."""

    def named(name: str) -> str:
        found = namespaces.objects.get(("", name))
        return "" if found is None else (found.metadata.labels or {}).get(gate_of(domain), "")

    return named


def skips(namespaces: Informer[Namespace]) -> Callable[[str], bool]:
    """Whether a namespace is labelled to be left alone."""

    def skipped(name: str) -> bool:
        found = namespaces.objects.get(("", name))
        return found is not None and ignores(found.metadata.labels or {})

    return skipped
