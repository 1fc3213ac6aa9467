"""Claims whose devices cannot be parsed: the cards they may hold are cordoned, and events report it."""

from __future__ import annotations

from dataclasses import replace

from ullage.kube.client.objects import Object
from ullage.kube.events import PodEvent, Reason, RecordEvent
from ullage.model.error import InvalidRequest
from ullage.service.devices import Devices
from ullage.wire.dra.unread_claim import unread_devices, users_of

_REMEDY = "delete the pods that use it, so that it is deallocated; if an Ullage of a later version can read it, upgrade"


class UnreadClaims:
    """The current unreadable claims. Each claim, and each pod that uses it, has an event `CardsUnknown`."""

    def __init__(self, devices: Devices, record_event: RecordEvent) -> None:
        self._devices, self._record_event = devices, record_event
        self._events: dict[str, list[PodEvent]] = {}

    def withhold(self, found: Object, error: InvalidRequest) -> None:
        """Keep new work off all that a claim may hold."""
        unread, (namespace, name) = unread_devices(found.document), found.key
        self._devices.withhold(found.metadata.uid, unread)
        what = f"no device of {unread} takes new work while claim {name} cannot be read: {error.message}; {_REMEDY}"
        uid = found.metadata.uid
        own = PodEvent(namespace, name, uid, Reason.CARDS_UNKNOWN, message=what)
        of_pods = [replace(own, pod=pod, uid=pod_uid) for pod, pod_uid in users_of(found.document)]
        self._events[uid] = [replace(own, kind="ResourceClaim", api_version=_VERSION), *of_pods]
        self._report(uid)

    def forget(self, uid: str) -> None:
        """Forget a claim that can be parsed by now, or is deleted."""
        self._devices.withhold(uid, None)
        self._events.pop(uid, None)

    def report_again(self) -> None:
        """Record events for all of them: nothing was written before this process led."""
        for uid in self._events:
            self._report(uid)

    def _report(self, uid: str) -> None:
        for event in self._events[uid]:
            self._record_event(event)


_VERSION = "resource.k8s.io/v1"
