"""The claim of a pod: its owner, priority and protection."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from ullage.model.claim import PRIORITIES, Claim, Qos
from ullage.model.error import invalid
from ullage.model.quantity import MAX_INT32
from ullage.wire.document import Document, text
from ullage.wire.pod.cards import CardRequest
from ullage.wire.pod.duration import parse_duration
from ullage.wire.pod.gang import gang_of
from ullage.wire.pod.keys import Keys
from ullage.wire.pod.request import PodDefaults
from ullage.wire.shared import shared_texts


def claim_of(
    keys: Keys, spec: Document, asked: CardRequest, defaults: PodDefaults, replicas: int | None, now: float
) -> tuple[Claim, tuple[str, ...]]:
    """Return the claim of a pod, and warnings."""
    metadata = keys.metadata
    namespace = text(metadata.get("namespace")) or "default"
    workload = keys.label("workload") or keys.text("workload") or ""
    stated = keys.choice("qos", Qos)
    qos = stated or (Qos.HIGH if asked.guaranteed else defaults.qos)
    created_at = moment(metadata.get("creationTimestamp"), now)
    protection, warnings = _protection(keys)
    claim = Claim(
        namespace=namespace,
        workload=workload,
        pod=text(metadata.get("name")) or text(metadata.get("generateName")),
        pod_uid=text(metadata.get("uid")),
        limit=asked.limit,
        qos=qos,
        priority=_priority(spec, stated),
        created_at=created_at,
        protected_until=created_at + protection if protection else 0.0,
        gang=gang_of(keys, namespace, workload, replicas),
        labels=_labels(keys),
    )
    return claim, warnings


def bare_claim(keys: Keys) -> Claim:
    """Return the claim of a pod by its identity alone."""
    namespace, name, uid = (text(keys.metadata.get(key)) for key in ("namespace", "name", "uid"))
    return Claim(namespace, pod=name, pod_uid=uid)


def plain_claim(keys: Keys, spec: Document) -> Claim:
    """Return the claim of a pod that requests no cards of its own."""
    metadata, bare = keys.metadata, bare_claim(keys)
    return replace(
        bare,
        namespace=bare.namespace or "default",
        priority=_priority(spec, keys.choice("qos", Qos)),
        created_at=moment(metadata.get("creationTimestamp"), 0.0),
        labels=_labels(keys),
    )


def _labels(keys: Keys) -> dict[str, str]:
    return shared_texts(tuple((str(key), text(value)) for key, value in keys.labels.items()))


def _priority(spec: Document, stated: Qos | None) -> int:
    """Return the pod's own priority, as kube-scheduler reads it, else that of the quality of service it states.

    A quality of service that is only inferred gives no priority. Kubernetes writes 0 for a pod without a class, and
    would evict for others a pod that counted as more here.
    """
    priority = spec.get("priority")
    if priority is None or (priority == 0 and not spec.get("priorityClassName")):
        return 0 if stated is None else PRIORITIES[stated]
    if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) > MAX_INT32:
        raise invalid("spec.priority", priority, "a 32-bit integer is needed")
    return priority


def _protection(keys: Keys) -> tuple[float, tuple[str, ...]]:
    """Return the seconds after its creation in which a pod is protected, and warnings.

    A value that cannot be read protects nothing, and is a warning.
    """
    value = keys.text("eviction-protection")
    seconds = 0.0 if value is None else parse_duration(value)
    if seconds is not None:
        return seconds, ()
    return 0.0, (
        f"{keys.key('eviction-protection')}: {value!r} is not a duration such as 30m; it does not protect the pod",
    )


def moment(value: object, now: float) -> float:
    """Return the seconds since the epoch of a Kubernetes timestamp; YAML may have made it a datetime."""
    if value is None:
        return now
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(text(value))
    except ValueError:
        raise invalid("metadata.creationTimestamp", value, "write a time such as 2026-01-31T12:00:00Z") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
