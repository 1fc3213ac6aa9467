"""Allocates the claims of gated pods, so that kube-scheduler and the kubelet follow that allocation.

kube-scheduler ignores a pod with the gate `DOMAIN/claims`. This controller chooses a node and devices for all claims of
the pod together. It writes them into the status of the claims with a reservation for the pod, and then removes the
gate. kube-scheduler respects allocated claims. So at any time only one component decides about a pod.

All progress can be read from the API: after a restart the controller continues, or frees what cannot be completed.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from ullage.kube.bindings.filter import BindingFilter
from ullage.kube.claims.asked import claiming_pod, gone_pod, node_of
from ullage.kube.claims.devices import DeviceMirror
from ullage.kube.claims.writes import ClaimWrites
from ullage.kube.client.changes import Patch, PatchType
from ullage.kube.client.informer import Added, Changed, Delta, Removed
from ullage.kube.client.kinds import PODS, RESOURCE_CLAIMS
from ullage.kube.client.lease import NotLeading
from ullage.kube.client.objects import Object, Pod
from ullage.kube.context import KubeContext
from ullage.kube.controller import ALL, FIRST_S, Controller
from ullage.kube.events import PodEvent, Reason
from ullage.kube.leader.ready_term import ReadyTerm
from ullage.model.device_claim import MAX_RESERVATIONS, DeviceClaim
from ullage.model.error import InvalidRequest, NotFound, UllageError, invalid
from ullage.service.claims import ClaimingPod, ClaimPlacement, Claims, Unplaced
from ullage.service.gates import Gates
from ullage.wire.dra.claim import PodClaim, pod_claims, read_claim
from ullage.wire.dra.conditions import Readiness, readiness
from ullage.wire.pod.gate import gate_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Asked:
    """What one version of a pod requests: its claims by name, and its other requests."""

    version: str
    claims: tuple[PodClaim, ...]
    pod: ClaimingPod


AGAIN_S = 5.0
"""Seconds after which a waiting pod is tried again although no change was observed."""

_PAUSE_S = 0.05
"""Seconds for which events are gathered."""

_NODES_AT_ONCE = 32
"""Nodes that are examined before other tasks run: some milliseconds."""


def claims_gate(domain: str) -> str:
    return f"{domain}/claims"


class Claiming:
    """Serves waiting pods while this process leads. Pods of other schedulers are ignored."""

    def __init__(
        self,
        context: KubeContext,
        term: ReadyTerm,
        devices: DeviceMirror,
        claims: Claims,
        gates: Gates,
        *,
        scheduler: str,
        binding_filter: BindingFilter | None = None,
    ) -> None:
        """Claims of pods of `scheduler` are allocated in the order of `gates`, on cards that the filter allows."""
        self._api, self._candidate, self._pods = context.api, context.candidate, context.followed.pods
        self._mirror, self._term, self._devices, self._claims, self._gates = term.mirror, term, devices, claims, gates
        self._reader, self._bindings = context.read_pod, binding_filter
        self._record_event, self._on_error = context.record_event, context.on_error
        self._domain, self._scheduler, self._gate = context.domain, scheduler, claims_gate(context.domain)
        self._time = context.now
        self._writes = ClaimWrites(
            context.api,
            context.candidate,
            mark=context.key("allocated-for"),
            queue_key=gate_of(context.domain),
            now=self._now,
        )
        self._waiting: dict[tuple[str, str], Pod] = {}
        self._known: dict[str, _Asked] = {}
        """The parsed requests of waiting pods, by uid."""
        self._left: dict[str, Pod] = {}
        """Pods that were deleted before they had a node, and whose claims are still to be freed."""
        self._served: int | None = None
        """The last term with a complete look at all claims."""
        self._refused: dict[str, str] = {}
        """Reasons for equivalence classes refused in this pass: room only shrinks during a pass."""
        self.controller = Controller(
            "ResourceClaim", self.reconcile, on_error=context.on_error, guard=lambda: term.begun() and devices.served
        )
        term.subscribe(self.wake)
        devices.subscribe(self.wake)
        self._pods.subscribe(self._on_pod)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def wake(self) -> None:
        """Serve waiting pods soon: something has changed."""
        self.controller.add(ALL, _PAUSE_S)

    async def reconcile(self, _key: str) -> float:
        epoch, devices = self._term.check(), self._claims.devices
        if self._served != epoch:
            await self._release_abandoned(epoch)
        for claim in devices.being_written() if self._served != epoch else devices.overdue():
            try:
                await self._read(claim)
            except InvalidRequest as error:  # the devices stay held until the claim can be parsed again
                devices.written(claim.uid)
                self._on_error("ResourceClaim", f"{claim.namespace}/{claim.name}", error)
        self._served = epoch
        self._refused.clear()
        for uid, pod in list(self._left.items()):
            if await self._release(epoch, pod):
                self._left.pop(uid, None)
            else:
                self.controller.add(ALL, FIRST_S)
        for pod, asked in self._ordered():
            if self._waiting.get(pod.key) is not pod:
                continue
            try:
                await self._serve(epoch, pod, asked)
            except NotLeading:
                raise
            except UllageError as error:
                self._record_wait(pod, f"{error.code}: {error.message}")
            await asyncio.sleep(0)
        return AGAIN_S

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._time(), UTC)

    def _on_pod(self, delta: Delta[Pod]) -> None:
        match delta:
            case Added(new) | Changed(_, new) if self._is_ours(new):
                self._waiting[new.key] = new
            case Added(new) | Changed(_, new):
                self._forget(new)
                if not new.finished:
                    return  # it frees nothing
            case Removed(last):
                self._forget(last)
                if (
                    not last.spec.node_name
                    and last.spec.scheduler_name == self._scheduler
                    and pod_claims(last.document)
                ):
                    self._left[last.metadata.uid] = last
        self.wake()

    def _forget(self, pod: Pod) -> None:
        self._waiting.pop(pod.key, None)
        self._known.pop(pod.metadata.uid, None)

    def _is_ours(self, pod: Pod) -> bool:
        """Return whether a pod waits for its claims only. A pod that also waits in a queue holds nothing meanwhile."""
        gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
        return gates == [self._gate] and pod.spec.scheduler_name == self._scheduler and not pod.terminating

    def _ordered(self) -> list[tuple[Pod, _Asked]]:
        """Return waiting pods in the order in which they are served. Record an event on those that cannot be parsed."""
        self._mirror.settle()
        found, devices = dict[str, tuple[Pod, _Asked]](), self._claims.devices
        pods = []
        for pod in self._waiting.values():
            try:
                asked = self._read_pod(pod)
                named = (devices.named(pod.metadata.namespace, each.claim) for each in asked.claims if each.claim)
                claims = tuple(claim for claim in named if claim is not None)
                pods.append(self._claims.admission_request(replace(asked.pod, claims=claims)))
            except UllageError as error:
                self._record_wait(pod, f"{error.code}: {error.message}")
            else:
                found[pod.metadata.uid] = pod, asked
        return [found[uid] for uid in self._gates.in_order(pods)]

    def _read_pod(self, pod: Pod) -> _Asked:
        """Return what a pod requests; each version is parsed once.

        Raises:
            InvalidRequest: it cannot be parsed.

        """
        known = self._known.get(pod.metadata.uid)
        if known is None or known.version != pod.metadata.resource_version:
            document = pod.document
            other = self._reader(document)  # cards that it requests apart from its claims
            if other is not None and other.further:
                families = ", ".join(each.family for each in other.by_family)
                raise invalid("spec.containers", families, "a pod with claims requests further cards of one family")
            asked = claiming_pod(pod, document, self._domain, None if other is None else other.request)
            known = _Asked(pod.metadata.resource_version, pod_claims(document), asked)
            self._known[pod.metadata.uid] = known
        return known

    # --- one pod ---

    async def _serve(self, epoch: int, pod: Pod, asked: _Asked) -> None:
        """Allocate the unallocated claims of a pod, reserve all of them, and remove its gate."""
        claims = await self._claims_of(pod, asked.claims)
        if claims is None:
            return
        placement = await self._choose(pod, replace(asked.pod, claims=claims))
        if isinstance(placement, str):
            wanted = " and ".join(str(each) for claim in claims for each in claim.requests)
            self._record_wait(pod, f"its claims cannot be allocated: {placement}; they ask for {wanted}")
            # A pod that holds one claim and waits for another could deadlock, so a waiting pod holds nothing.
            await self._take_back(epoch, pod, [claim for claim in claims if pod.metadata.uid in claim.reserved_for])
            return
        try:
            states = await self._write(epoch, pod, claims, placement)
        except NotLeading:
            raise
        except UllageError:
            await self._take_back(epoch, pod, claims)
            raise
        match readiness((state.document for state in states), self._now()):
            case Readiness.READY:
                request, node = asked.pod.request, placement.node or node_of(claims)
                if request is not None and node and not self._gates.keep(request, node):
                    self._record_wait(
                        pod, f"the cards that it requests in addition to its claims are no longer free on {node}"
                    )
                    await self._take_back(epoch, pod, claims)
                    return
                await self._open(epoch, pod)
                if placement.node and request is None and not self._pods.has_ended(pod.metadata.uid):
                    self._mirror.expect(pod, placement.node)
            case Readiness.FAILED:
                self._record_wait(pod, "a device did not become ready for it; its claims are allocated again")
                await self._take_back(epoch, pod, claims)
            case Readiness.WAITING:
                pass  # their drivers report on the claims

    async def _choose(self, pod: Pod, asked: ClaimingPod) -> ClaimPlacement | str:
        """Return the devices for its claims, held from now on; or the reason why there are none."""
        self._mirror.settle()
        if self._bindings is not None:
            asked = replace(asked, cards=self._bindings.whole_cards(pod.document, pod.metadata.uid))
        if asked.cards is not None and asked.request is not None:
            return "where bindings count, cards may be requested by claims or by annotations and resources, not by both"
        key = asked.equivalence_class
        if key in self._refused:
            return self._refused[key]
        placement = await _paced(self._claims.placing(asked))
        if isinstance(placement, Unplaced):
            why = str(placement)
            self._refused |= {key: why} if key else {}
            return why
        refused = self._claims.hold(placement)
        return placement if refused is None else refused.code.value

    async def _claims_of(self, pod: Pod, named: Iterable[PodClaim]) -> tuple[DeviceClaim, ...] | None:
        """Return the current claims of a pod; None while one of them cannot be used."""
        found: dict[str, DeviceClaim] = {}
        for each in named:
            if each.claim is None:
                continue
            claim = self._claims.devices.named(pod.metadata.namespace, each.claim) if each.claim else None
            if claim is not None and self._claims.devices.is_being_written(claim.uid):
                claim = await self._read(claim)  # the watch is behind, or a response was lost
            why = "does not exist yet" if claim is None else self._unusable(claim, pod, made=each.made)
            if why or claim is None:
                self._record_wait(pod, f"its claim {each.name} {why}")
                return None
            found[claim.uid] = claim
        return tuple(found.values())

    def _unusable(self, claim: DeviceClaim, pod: Pod, *, made: bool) -> str:
        """Return why a pod cannot use a claim; "" if it can."""
        uid = pod.metadata.uid
        if made and claim.owner != uid:
            return "was made for another pod"
        if claim.deleting:
            return "is being deleted"
        if claim.uid in self._devices.unreadable:
            return f"cannot be read: {self._devices.unreadable[claim.uid]}"
        if len(claim.reserved_for) >= MAX_RESERVATIONS and uid not in claim.reserved_for:
            return f"is reserved for {MAX_RESERVATIONS} pods, more cannot be"
        return ""

    async def _read(self, claim: DeviceClaim) -> DeviceClaim | None:
        """Read a claim from the server. Free what is held for it if it was allocated otherwise, or not at all."""
        devices = self._claims.devices
        try:
            there = await self._api.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
        except NotFound:
            there = None
        if there is None or there.metadata.uid != claim.uid:
            devices.drop(claim.uid)
            return None
        found = read_claim(there.document)
        if devices.has_what_was_written(found):
            devices.written(claim.uid)
        else:
            devices.drop(claim.uid)
        return found

    async def _write(
        self, epoch: int, pod: Pod, claims: Sequence[DeviceClaim], placement: ClaimPlacement
    ) -> list[Object]:
        """Write all allocations and reservations. Return the updated claims."""
        states = []
        numbers = {claim.uid: number for number, claim in enumerate(placement.claims)}
        classes = {key[1]: each.document for key, each in self._devices.classes.objects.items()}
        for claim in claims:
            found = await self._writes.fresh(claim)
            if claim.uid not in numbers:
                states.append(await self._writes.reserve(epoch, pod, found))
                continue
            picks = [(p.request, p.device, p.admin, p.consumed) for p in placement.picks_of(numbers[claim.uid])]
            node = placement.node
            states.append(await self._writes.allocate(epoch, pod, found, classes=classes, picks=picks, node=node))
            self._claims.devices.written(claim.uid)
        return states

    async def _open(self, epoch: int, pod: Pod) -> None:
        """Remove the gate from the pod, unless another pod has its name by now."""
        namespace, name = pod.key
        steps: list[Mapping[str, Any]] = [
            {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
            {"op": "test", "path": "/spec/schedulingGates/0/name", "value": self._gate},
            {"op": "remove", "path": "/spec/schedulingGates/0"},
        ]
        await self._candidate.write(epoch, Patch(PODS, name, steps, namespace=namespace, type=PatchType.JSON))
        self._forget(pod)

    # --- freeing ---

    async def _take_back(self, epoch: int, pod: Pod, claims: Iterable[DeviceClaim]) -> bool:
        """Free what these claims reserve for the pod, and what was allocated for it and has no users.

        Return whether all of it is free.
        """
        done = True
        for claim in claims:
            self._refused.clear()
            try:
                found = await self._api.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
                if found.metadata.uid == claim.uid:
                    await self._writes.free(epoch, pod.metadata.uid, found)
                self._claims.devices.drop(claim.uid)
            except NotFound:
                self._claims.devices.drop(claim.uid)
            except NotLeading:
                raise
            except UllageError as error:  # the next pass, or the next leader, tries again
                self._record_wait(pod, f"claim {claim.name} could not be freed: {error.message}")
                done = False
        return done

    async def _release(self, epoch: int, pod: Pod) -> bool:
        """Free the claims of a pod that was deleted without a node. Return whether nothing is left to free."""
        try:
            there = await self._api.get(PODS, pod.metadata.name, pod.metadata.namespace)
            if there.metadata.uid == pod.metadata.uid:
                return True
        except NotFound:
            pass
        names = [each.claim for each in pod_claims(pod.document) if each.claim]
        found = [self._claims.devices.named(pod.metadata.namespace, name) for name in names]
        return await self._take_back(epoch, pod, [claim for claim in found if claim is not None])

    async def _release_abandoned(self, epoch: int) -> None:
        """Free what was allocated here for pods that were deleted while no process led."""
        for found in list(self._devices.claims.objects.values()):
            users = (found.document.get("status") or {}).get("reservedFor") or ()
            if self._writes.mark not in (found.metadata.annotations or {}):
                continue
            for user in users:
                key, uid = (found.metadata.namespace, str(user.get("name"))), str(user.get("uid"))
                known = self._pods.objects.get(key)
                if user.get("resource") == "pods" and (known is None or known.metadata.uid != uid):
                    gone = gone_pod(*key, uid, found.metadata.name)
                    if not await self._release(epoch, gone):
                        self._left[f"{uid} {found.metadata.uid}"] = gone

    def _record_wait(self, pod: Pod, why: str) -> None:
        self._record_event(PodEvent.on(pod, Reason.CLAIMS_WAIT, why))


async def _paced(looking: Generator[None, None, T]) -> T:
    """Return the result of examining many nodes, with pauses for other tasks."""
    for number in itertools.count(1):
        try:
            next(looking)
        except StopIteration as found:
            done: T = found.value
            return done
        if number % _NODES_AT_ONCE == 0:
            await asyncio.sleep(0)
    raise AssertionError
