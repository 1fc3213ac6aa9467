"""Why a pod of a cluster waits, from the pod and its events, which users can read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from ullage.kube.client.api import Selection
from ullage.kube.client.changes import MANAGER
from ullage.kube.client.connection import connect
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import EVENTS, PODS
from ullage.kube.client.objects import Pod
from ullage.wire.document import Document


class PodEventBody(msgspec.Struct, frozen=True):
    """One event on a pod: when it was last seen (RFC 3339), its reason, its component and its message."""

    at: str
    reason: str
    component: str
    message: str
    type: str


class PodWhyBody(msgspec.Struct, frozen=True):
    """The state of a pod and the reason; events come newest first."""

    pod: str
    node: str
    phase: str
    summary: str
    events: list[PodEventBody]


def pod_why(namespace: str, name: str, kubeconfig: Path | None = None, context: str | None = None) -> PodWhyBody:
    """Return why a pod waits, or the node of the pod.

    Raises:
        InvalidRequest: (`kube-config`) the kubeconfig cannot be used.
        NotFound: no such pod exists.
        UllageError: the API server does not answer, or refuses to.

    """
    return asyncio.run(_read(namespace, name, kubeconfig, context))


async def _read(namespace: str, name: str, kubeconfig: Path | None, context: str | None) -> PodWhyBody:
    async with connect(kubeconfig, context) as client:
        api = HttpKubeApi(client)
        pod = await api.get(PODS, name, namespace)
        select = Selection(namespace, fields=f"involvedObject.uid={pod.metadata.uid}")
        found = [event.document async for page in api.pages(EVENTS, select) for event in page.items]
    events = sorted(map(_event, found), key=lambda each: each.at, reverse=True)
    return PodWhyBody(f"{namespace}/{name}", pod.spec.node_name, pod.status.phase, _summary(pod, events), events=events)


def _event(event: Document) -> PodEventBody:
    metadata, source = event.get("metadata") or {}, event.get("source") or {}
    series = event.get("series") or {}
    times = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        metadata.get("creationTimestamp"),
    )
    return PodEventBody(
        next((str(time) for time in times if time), ""),
        str(event.get("reason") or ""),
        str(source.get("component") or event.get("reportingComponent") or ""),
        str(event.get("message") or ""),
        type=str(event.get("type") or ""),
    )


def _summary(pod: Pod, events: list[PodEventBody]) -> str:
    if pod.spec.node_name:
        return f"it is on {pod.spec.node_name}"
    ours = next((each for each in events if each.component == MANAGER), None)
    if ours is not None:
        return f"{ours.reason}: {ours.message}"
    found = condition_of(pod.document)
    if found is not None:
        return ": ".join(found)
    scheduler = (pod.document.get("spec") or {}).get("schedulerName") or "default-scheduler"
    return f"no event or condition gives a reason yet; its scheduler is {scheduler}"


def condition_of(pod: Document) -> tuple[str, str] | None:
    """Return the reason and the message of the condition that says why a pod is not scheduled; None without one."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    scheduled = (each for each in conditions if each.get("type") == "PodScheduled" and each.get("message"))
    found = next(scheduled, None)
    return None if found is None else (str(found.get("reason") or "PodScheduled"), str(found["message"]))
