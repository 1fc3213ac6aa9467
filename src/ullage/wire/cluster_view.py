"""Schemas of what people look at on a cluster: its overview, and the plan of a request or of a pod.

`GET /v1/overview` and `POST /v1/plan` of the page of `ullage kube` have these bodies. A pod has the place of a session
in the bodies that both kinds of servers share: `namespace/pod` is the session of a holder of a card.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ullage.wire.allocation import PartMap
from ullage.wire.catalog import QueueBody
from ullage.wire.compute_resources import ComputeDeviceBody
from ullage.wire.node import GpuBody, NodeBody
from ullage.wire.requirement import ResourceMap
from ullage.wire.schema import Schema, View


class FrontBody(View, frozen=True, kw_only=True):
    """The process that answers. `unready` is the reason why it decides nothing; "" if it decides.

    `errors` are the kinds of objects that it cannot read now, with the reason.
    """

    version: str
    identity: str
    leads: bool
    unready: str
    errors: dict[str, str]


class WaitingPodBody(View, frozen=True, kw_only=True):
    """A pod without a node. `reason` is one word, `message` the sentence of its last event, annotation or condition.

    `request` is what it asks of the cards; it is empty if the pod cannot be read. `position` in its queue counts from
    1; None outside of queues.
    """

    namespace: str
    pod: str
    queue: str
    priority: int
    request: str
    created_at: float
    reason: str
    message: str
    position: int | None = None


class PodQueueBody(QueueBody, frozen=True, kw_only=True):
    """A queue of pods. `sessions` are its pods with cards and those that wait, `pending` those that wait.

    `oldest_at` is the creation of the pod that waits longest, in seconds since 1970. `admitted` pods have left the
    queue since the process started, after `waited_s` seconds on average.
    """

    oldest_at: float | None
    admitted: int
    waited_s: float | None


class ClusterOverview(View, frozen=True, kw_only=True):
    """The state of the cluster at one time. `waiting` has the first pods by priority and age of `waiting_count`.

    `bindings` are the cards that applications are bound to.
    """

    at: float
    front: FrontBody
    nodes: list[NodeBody]
    gpus: list[GpuBody]
    queues: list[PodQueueBody]
    waiting: list[WaitingPodBody]
    waiting_count: int
    bindings: list[ComputeDeviceBody]


class ClusterPlan(Schema, frozen=True, kw_only=True):
    """What is planned: `resreq` as in the requests of the server, or a whole `pod`. Nothing is changed."""

    resreq: str | ResourceMap | None = None
    pod: dict[str, Any] | None = None
    namespace: str = "default"
    limit: PartMap | None = None
    qos: str = "medium"
    priority: int | None = None
    strategy: str | None = None


MOST_PLAN_BYTES = 1 << 20
"""Bytes of the body of a plan: more than any pod."""


def read_overview(body: bytes) -> ClusterOverview:
    """Return an overview from its JSON.

    Raises:
        msgspec.DecodeError: it is none.

    """
    return msgspec.json.decode(body, type=ClusterOverview)
