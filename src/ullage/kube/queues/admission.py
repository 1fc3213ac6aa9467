"""Admission of gated pods: removes the scheduling gate of each pod when its queue admits it.

This controller passes what the API reports to `Gates` and writes the decisions back. It is no admission webhook. All
state follows from the API. A pod without its gate and without a node was admitted if an annotation says so, and its
place is reserved again after a restart. A pod of the direct scheduler has no gate: a subscriber binds it. Each round
compares the intended writes with the current objects, so a failed write is retried until it succeeds or is no longer
needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from ullage.core.explaining.cures import cure_text
from ullage.core.placing.decision import Refusal
from ullage.core.verdict.sentences import MEANINGS, first_text
from ullage.kube.claims.claiming import claims_gate
from ullage.kube.client.changes import Patch, PatchType
from ullage.kube.client.errors import ApiForbidden
from ullage.kube.client.informer import Added, Changed, Delta, Removed
from ullage.kube.client.kinds import PODS
from ullage.kube.client.objects import KubeNode, Pod
from ullage.kube.context import KubeContext
from ullage.kube.controller import ALL, Controller
from ullage.kube.events import PodEvent, Reason
from ullage.kube.leader.ready_term import ReadyTerm
from ullage.kube.queues.pod_groups import PodGroups
from ullage.model.affinity import NODE_NAME
from ullage.model.claim import GangClaim, Request
from ullage.model.error import UllageError, invalid
from ullage.model.family_ids import family_ids, further_ids
from ullage.service.gated import Standing
from ullage.service.gates import Gates
from ullage.service.queue_holdings import QueueOf
from ullage.wire.direct_pods import check_direct
from ullage.wire.json_patch import PatchOperation
from ullage.wire.pod import PodRequest
from ullage.wire.pod.gate import gate_of, open_gate, place_of, reason_of, set_reason

OnPlaces = Callable[[Mapping[str, str]], None]
"""Called with nodes by uid; "" for a pod that may go to any."""

GATHER_S = 0.05
"""Seconds for which changes are gathered before the next decision."""

REST = 4.0
"""After a decision, other requests are served for this multiple of its duration before the next decision."""

AGAIN_S = 1.0
"""Seconds before a failed write is retried, and between checks for changes that no pod or node event shows."""

REPORTED_AGAIN_S = 60.0
"""Seconds for which a changed position in the queue alone is not written on a pod. A new reason is written at once."""

GAP_S = 0.05
"""Seconds between two writes of reasons: at most 20 each second."""

_AT_ONCE = 16
_PLACE = re.compile(r"; \d+ of \d+ in queue .*")
"""The position in a reason: it changes often, so events do not have it."""


@dataclass(slots=True)
class _Reported:
    """The last reason written on a pod, and when."""

    code: str
    text: str
    at: float


class AdmissionController:
    """Opens gates while this process leads: decides, opens gates, writes reasons. `begin` is a step of the takeover."""

    def __init__(
        self,
        context: KubeContext,
        term: ReadyTerm,
        gates: Gates,
        queue_of: QueueOf,
        groups: PodGroups,
        at_once: Callable[[str], bool] = lambda _namespace: False,
    ) -> None:
        """`at_once` returns whether the pods of a namespace skip the queue because bindings decide on their cards."""
        self.gates, self._queue_of = gates, queue_of
        self._mirror, self._term, self._groups, self._cluster = term.mirror, term, groups, context.cluster
        self._candidate, self._read_pod = context.candidate, context.read_pod
        self._namespaces, self._domain = context.followed.namespaces, context.domain
        self._settings, self._scheduler = context.pod_settings, context.scheduler
        self._is_direct = context.is_direct
        self._record_event, self._clock, self._pause = context.record_event, context.clock, context.pause
        self._informer, self._on_error = context.followed.pods, context.on_error
        self._nominates = True
        """False once the API server has refused to let this process write the status of a pod."""
        self._pods: dict[str, Pod] = {}
        """Pods that wait, and pods whose gate is open and that have no node yet."""
        self._gate = gate_of(self._domain)
        self._members: dict[str, Pod] = {}
        """Gang members on a node: they count towards the quorum of the waiting members."""
        self._of_several: dict[str, PodRequest] = {}
        """Requests of waiting pods for cards of several families."""
        self._at_once = at_once
        self._free: set[str] = set()
        """Pods that request no card or do not wait: their gate may open at any time."""
        self._wrong: dict[str, UllageError] = {}
        self._reported: dict[str, _Reported] = {}
        self._written: dict[str, str] = {}
        """The resourceVersion of each pod that was patched. It is not patched again before it has a new version."""
        self._to_report: dict[str, tuple[str, str]] = {}
        self._to_open: dict[str, str] = {}
        """The nodes of admitted pods, as of the last decision; "" for a pod that may go to any."""
        self._on_places: list[OnPlaces] = []
        self._stale = self._grouped = False
        self._changed = True
        self.failed = 0
        """Failed writes, which were or will be retried."""
        make = partial(Controller[str], "Pod", on_error=context.on_error)
        self._decisions = make(self._decide, guard=lambda: term.begun() and groups.ready and self._namespaces.synced)
        self._openings = make(self._open, guard=term.begun, at_once=_AT_ONCE)
        self._reasons = make(self._write_reason, guard=term.begun)
        self.controllers = (self._decisions, self._openings, self._reasons)
        term.subscribe(self.begin)
        groups.subscribe(self._read_again)
        self._informer.subscribe(self._on_pod)
        context.followed.nodes.subscribe(self._on_node)
        self._namespaces.subscribe(lambda _delta: self._read_again())

    def subscribe(self, on_places: OnPlaces) -> None:
        """Call with the places of all admitted pods of the direct scheduler after each decision."""
        self._on_places.append(on_places)

    def pod(self, uid: str) -> Pod | None:
        """Return a pod that waits or was admitted and has no node; None if it is none of these."""
        return self._pods.get(uid)

    def _on_node(self, delta: Delta[KubeNode]) -> None:
        if not isinstance(delta, Changed):
            self._read_again()  # the nodes decide whether a pod has to share cards
        self._wake()

    def begin(self) -> None:
        """Reserve the places of admitted pods before any request is answered."""
        self._written.clear()
        self._to_open.clear()  # what an earlier term decided and did not write
        self._enter_again()
        self.gates.begin()
        self._wake()

    def _wake(self) -> None:
        """Decide soon: something has changed."""
        self._changed = True
        self._decisions.add(ALL, GATHER_S)

    # --- events from the API ---

    def _read_again(self) -> None:
        """Read pods again: groups, or the queues of namespaces, have changed."""
        self._stale = True
        self._wake()

    def _enter_again(self) -> None:
        self._stale = False
        self.gates.queues_changed()
        for pod in [*self._pods.values(), *self._members.values()]:
            self._enter(pod)

    def _on_pod(self, delta: Delta[Pod]) -> None:
        match delta:
            case Removed(last):
                self._forget(last.metadata.uid)
            case Added(new) | Changed(_, new):
                self._enter(new)
        self._wake()

    def _forget(self, uid: str) -> None:
        self._drop(uid)
        self._clear(uid)

    def _drop(self, uid: str) -> None:
        for each in family_ids(uid):
            self.gates.drop(each)

    def _clear(self, uid: str) -> None:
        self._free.discard(uid)
        for known in (self._pods, self._members, self._wrong, self._reported, self._to_report, self._written):
            known.pop(uid, None)
        self._of_several.pop(uid, None)

    def _enter(self, pod: Pod) -> None:
        uid, closed = pod.metadata.uid, {gate.name for gate in pod.spec.scheduling_gates or ()}
        gated, others = self._gate in closed, closed - {self._gate, claims_gate(self._domain)}
        place = place_of(pod.metadata.annotations or {}, self._domain)
        if pod.finished or pod.terminating:
            self._forget(uid)
        elif pod.spec.node_name:
            in_gang = self._in_gang(pod)
            request = next(iter(self._read(pod)), None) if in_gang else None
            self._clear(uid)
            if in_gang:
                self._members[uid] = pod
            gang = None if request is None else request.claim.gang
            self.gates.placed(uid, gang, pod.spec.node_name)
            for each in further_ids(uid):
                self.gates.placed(each)
        elif not others and (gated or place or self._is_direct(pod)):  # claims are allocated after admission
            self._pods[uid] = pod
            self._enter_waiting(pod, place, gated=gated or self._is_direct(pod))
        else:
            self._forget(uid)  # another gate holds it, or it never waited here

    def _enter_waiting(self, pod: Pod, place: str, *, gated: bool) -> None:
        requests = self._read(pod)
        if not requests:
            self._drop(pod.metadata.uid)
        for request in requests:
            if gated:
                self.gates.wait(request, self._queue_of(request.claim))
            else:
                self.gates.opened(request, self._queue_of(request.claim), place)

    def _in_gang(self, pod: Pod) -> bool:
        keys = pod.metadata.annotations or {}
        return self._groups.named_by(pod) or any(key.startswith(f"{self._domain}/gang-") for key in keys)

    def _shape(self, asked: PodRequest) -> PodRequest:
        """Return what a pod requests: a card for each container, or shared cards where no node has as many cards."""
        most = self._mirror.machines.most_cards
        return next((each for each in (asked, *asked.shared) if each.requirement.gpu_count <= most), asked)

    def _read(self, pod: Pod) -> tuple[Request, ...]:
        """Return the request of a pod for each family of its cards; none if it requests no card or cannot be parsed."""
        uid = pod.metadata.uid
        self._wrong.pop(uid, None)
        self._free.discard(uid)
        try:
            asked = self._read_pod(pod.document)
            if self._is_direct(pod):
                check_direct(pod.document, asked, self._settings, self._scheduler)
            if asked is None or self._at_once(pod.metadata.namespace):
                self._free.add(uid)
                return ()
            requests = tuple(self._shape(each).request for each in asked.by_family)
            for request in requests:
                self.gates.check(request)
            gang = asked.claim.gang or self._groups.gang_of(pod)
            if asked.further:
                gang, self._of_several[uid] = _on_one_node(asked, gang), asked
        except UllageError as error:
            self._wrong[uid] = error
            return ()
        return requests if gang is None else tuple(_in(gang, each) for each in requests)

    # --- decisions ---

    async def _decide(self, _key: str) -> float:
        """Decide if something has changed, also without an event: claims, quotas and expired places change the books.

        Return the seconds until a deadline passes, or changes are checked again.
        """
        if self._changed or self.gates.has_news or self.gates.wake_in_s() == 0.0:
            self._changed = False
            self._mirror.settle()
            if self._stale or not self._grouped:  # pods were parsed before their groups were known
                self._grouped = True
                self._enter_again()
            began = self._clock()
            lapsed = self.gates.step()
            took = self._clock() - began
            for uid, node in lapsed:
                self._record(uid, Reason.NOT_PLACED, f"no scheduler placed it on {node} in time; other nodes are tried")
            self._compare()
            self._hand_out(self.gates.places() | dict.fromkeys(sorted(self._free), ""))
            await self._pause(REST * took)
        left_s = self.gates.wake_in_s()
        return AGAIN_S if left_s is None else max(GATHER_S, min(left_s, AGAIN_S))

    def _hand_out(self, places: dict[str, str]) -> None:
        """Have gates opened, and pods of the direct scheduler without a gate bound."""
        ready = (uid for uid in places if (pod := self._pods.get(uid)) and not pod.spec.scheduling_gates)
        direct = {uid: places.pop(uid) for uid in list(ready) if self._is_direct(self._pods[uid])}
        for listener in self._on_places:
            listener(direct)
        self._to_open = places
        for uid in places:
            self._openings.add(uid)

    async def _open(self, uid: str) -> None:
        """Open the gate of an admitted pod, and write its node on it, unless this version of it has that."""
        pod, node = self._pods.get(uid), self._to_open.get(uid)
        if pod is None or node is None or self._written.get(uid) == pod.metadata.resource_version:
            return
        if not (changes := open_gate(pod.document, node, self._domain)):
            return
        if node and (nominated := await self._nominate(pod, node)) is not pod:
            pod, changes = nominated, open_gate(nominated.document, node, self._domain)
        await self._write(pod, changes)
        if uid in self._pods:
            self._written[uid] = pod.metadata.resource_version
        if node:
            self._record(uid, Reason.ADMITTED, f"its queue admits it; {node} has room for it")

    async def _nominate(self, pod: Pod, node: str) -> Pod:
        """Nominate the node of a pod, and return the changed pod.

        kube-scheduler then filters this node first, asks about it alone, and looks at others only if it is refused. A
        node that kube-scheduler has nominated, which ignores gated pods, stays: victims may have left it for the pod.
        """
        nominated, place = pod.status.nominated_node_name, place_of(pod.metadata.annotations or {}, self._domain)
        by_scheduler = nominated not in ("", place) and not pod.spec.scheduling_gates
        if not self._nominates or nominated == node or by_scheduler:
            return pod
        namespace, name = pod.key
        version = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
        body = {"metadata": version, "status": {"nominatedNodeName": node}}
        patch = Patch(PODS, name, body, namespace=namespace, subresource="status")
        try:
            nominated_pod = PODS.read(await self._candidate.write(self._term.check(), patch))
        except ApiForbidden as error:
            self._nominates = False  # without the right pods are placed all the same, after more questions
            self._on_error("Pod", f"{namespace}/{name}", error)
            return pod
        except UllageError:
            self.failed += 1
            raise
        self._informer.apply_write(pod, nominated_pod)
        return nominated_pod

    async def _write(self, pod: Pod, changes: list[PatchOperation]) -> None:
        namespace, name = pod.key
        patch = Patch(PODS, name, msgspec.to_builtins(changes), namespace=namespace, type=PatchType.JSON)
        try:
            await self._candidate.write(self._term.check(), patch)
        except UllageError:
            self.failed += 1
            raise

    # --- reasons why a pod waits ---

    def _compare(self) -> None:
        """Queue the writes that are due: new reasons and, after a while, new positions in the queue."""
        self._to_report = {}
        refusals = self.gates.refusals()
        due = [uid for uid, refusal in refusals.items() if self._is_due(uid, refusal.code.value)]
        standings = self.gates.standings() if due else {}
        for uid in due:
            why = self._why_of_several(uid) or _why(refusals[uid])
            self._note(uid, refusals[uid].code.value, _reason_text(standings[uid], refusals[uid], why))
        for uid, error in self._wrong.items():
            if self._is_due(uid, error.code):
                self._note(uid, error.code, f"{error.code}: {error.message}")

    def _why_of_several(self, uid: str) -> str:
        """Return which families of a pod with several lack room; "" for any other pod."""
        asked = self._of_several.get(uid)
        if asked is None:
            return ""
        nodes = list(self._mirror.machines.by_name)
        offers = self._cluster.offers
        lacking = [
            each.family
            for each in asked.by_family
            if not any(offers(way.request, nodes, expected=False).names for way in (each, *each.shared))
        ]
        if lacking:
            return f"no node has room for its cards of {' and of '.join(lacking)}"
        return f"no node has room for its cards of {' and '.join(each.family for each in asked.by_family)} together"

    def _is_due(self, uid: str, code: str) -> bool:
        """Return whether the reason is new, or the last write is long ago."""
        pod = self._pods.get(uid)
        if pod is None:
            return False
        known = self._reported.get(uid) or self._last_reported(pod)
        return known.code != code or self._clock() - known.at >= REPORTED_AGAIN_S

    def _note(self, uid: str, code: str, text: str) -> None:
        if self._reported[uid].text != text:
            self._to_report[uid] = (code, text)
            self._reasons.add(uid)

    def _last_reported(self, pod: Pod) -> _Reported:
        """Return what an earlier leader wrote on a pod."""
        text = reason_of(pod.metadata.annotations or {}, self._domain)
        found = self._reported[pod.metadata.uid] = _Reported(text.partition(":")[0], text, self._clock())
        return found

    async def _write_reason(self, uid: str) -> None:
        """Write the reason that is due for a pod, a few each second."""
        due, known = self._to_report.pop(uid, None), self._reported.get(uid)
        if due is None or known is None:
            return  # nothing is due, or the last write was lost: compare first
        code, text = due
        if known.code != code:
            self._record(uid, Reason.WAITING, _PLACE.sub("", text))
        self._reported[uid] = _Reported(code, text, self._clock())
        pod = self._pods[uid]
        changes = set_reason(pod.document, text, self._domain)
        if changes and self._written.get(uid) != pod.metadata.resource_version:
            try:
                await self._write(pod, changes)
            except UllageError:
                self._reported.pop(uid, None)  # compare with the object again, and retry
                self._wake()
                raise
        await self._pause(GAP_S)

    def _record(self, uid: str, reason: Reason, message: str) -> None:
        pod = self._pods.get(uid)
        if pod is not None:
            self._record_event(PodEvent.on(pod, reason, message))


def _on_one_node(asked: PodRequest, gang: GangClaim | None) -> GangClaim:
    """Return the gang of the requests of one pod: all of them on one node.

    Raises:
        InvalidRequest: the pod is a member of a gang.

    """
    if gang is not None:
        families = ", ".join(each.family for each in asked.by_family)
        raise invalid("spec.containers", families, "a member of a gang has cards of one family")
    count = len(asked.by_family)
    return GangClaim(asked.uid, count, count, within=NODE_NAME)


def _in(gang: GangClaim, request: Request) -> Request:
    return replace(request, claim=replace(request.claim, gang=gang))


def _why(refusal: Refusal) -> str:
    why = first_text(refusal.rejections) if refusal.rejections else MEANINGS[refusal.code]
    return why + "".join(f" ({cure})" for each in refusal.rejections[:1] if (cure := cure_text(each)))


def _reason_text(standing: Standing, refusal: Refusal, why: str) -> str:
    """Return the text for a pod: the code, the sentence, and its position in the queue."""
    kept = f"; room is reserved for it on {', '.join(standing.reserved)}" if standing.reserved else ""
    place = f"{standing.position} of {standing.waiting} in queue {standing.queue}"
    return f"{refusal.code.value}: {why}; {place}{kept}"
