"""Chooses a node and devices for a pod that waits for its claims.

The rules in `core/verdict/device_search.py` say which devices suit. Among the cards that suit, the books choose, as
for every other request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ullage.core.books.fleet import Fleet
from ullage.core.books.slices import Slices, at_once
from ullage.core.books.trial import trial
from ullage.core.kernel.columns import CHANGED
from ullage.core.placing.decision import Choice, Refusal
from ullage.core.verdict.device_search import (
    MAX_STEPS,
    DevicePick,
    Offer,
    SearchExhausted,
    Steps,
    groups,
    rank,
    search,
    suitable,
)
from ullage.core.verdict.nodes import closed, shortfalls, unsuited
from ullage.model.affinity import ANY_NODE, EVERY_NODE, NodeAffinity
from ullage.model.alignment import Alignment, LinkDemand
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.counted import counted
from ullage.model.device_claim import DeviceAlternative, DeviceClaim, DeviceClass, DeviceResult
from ullage.model.error import Conflict, InvalidRequest, UllageError
from ullage.model.part import ANY_CARD, CardSelector
from ullage.model.request import MAX_CARDS, ResourceRequirement
from ullage.model.slice_device import DeviceId, SliceDevice
from ullage.model.topology import ZonePolicy
from ullage.service.cluster import Cluster
from ullage.service.devices import Devices

_MAX_STEPS_OF_POD = 10 * MAX_STEPS
"""Devices that are tried for one pod, on all nodes together."""

_MAX_VERDICTS = 65_536

_MAX_CLASSES = 64
"""Maximum number of equivalence classes of pods whose refusals are remembered."""

_NO_DEVICES = "no-devices"

_TRIED = "devices of a claim"
"""The id in the books of devices that are charged to find out whether they leave room."""

Selects = Callable[[str, SliceDevice], bool]


@dataclass(frozen=True, slots=True)
class ClaimingPod:
    """A pod that waits for its claims, all of which exist.

    `policy` is how strictly its cards are aligned to zones: the policy of a node does not apply to cards of claims.
    `links` is what it asks of the links between them. `cards` are the cards that it may have, None for any. `request`
    is for cards that it requests apart from claims.
    """

    uid: str
    claims: tuple[DeviceClaim, ...]
    claim: Claim = field(default_factory=Claim)
    cpu_milli: int = 0
    memory_bytes: int = 0
    nodes: NodeAffinity = ANY_NODE
    policy: ZonePolicy | None = None
    links: LinkDemand | None = None
    cards: frozenset[str] | None = None
    request: Request | None = None

    @property
    def equivalence_class(self) -> str:
        """The equivalence class of a pod whose claims have no devices yet: equal for equal requests; else ""."""
        if any(claim.allocation is not None for claim in self.claims):
            return ""
        asked = [(claim.requests, claim.constraints) for claim in self.claims]
        cards = None if self.cards is None else sorted(self.cards)
        rest = self.cpu_milli, self.memory_bytes, self.nodes, self.policy, self.links, cards
        for_cards = self.request and (self.request.requirement, self.request.strategy, self.request.claim.counted_limit)
        return repr((asked, self.claim.namespace, self.claim.priority, *rest, for_cards))


@dataclass(frozen=True, slots=True)
class ClaimPlacement:
    """A node, and devices for the claims that have none yet."""

    node: str
    claims: tuple[DeviceClaim, ...]
    picks: tuple[DevicePick, ...]

    def picks_of(self, claim: int) -> tuple[DevicePick, ...]:
        """Return the devices for one claim, by its position in `claims`."""
        return tuple(pick for pick in self.picks if pick.claim == claim)


@dataclass(frozen=True, slots=True)
class Unplaced:
    """No node fits: the number of nodes for each reason."""

    reasons: Mapping[str, int]

    def __str__(self) -> str:
        total = sum(self.reasons.values())
        in_order = sorted(self.reasons, key=lambda why: (-self.reasons[why], why))
        texts = (f"{self.reasons[why]} of {counted(total, 'node')}: {why}" for why in in_order)
        return "; ".join(texts) or "there is no node"


class _Refusals:
    """Why nodes were refused to pods of one equivalence class, until something changes on the node."""

    def __init__(self, fleet: Fleet, devices: Devices) -> None:
        self.fleet, self._devices = fleet, devices
        self._known: dict[str, tuple[tuple[int, int], str]] = {}

    def current(self, node: str) -> str | None:
        """Return why a node was refused, if nothing has changed on it since; else None."""
        known = self._known.get(node)
        return known[1] if known is not None and known[0] == self._state(node) else None

    def record(self, node: str, why: str) -> None:
        """Remember why a node was refused, for a reason that does not depend on what is reserved for others."""
        if node in self.fleet.row_of:
            self._known[node] = self._state(node), why

    def _state(self, node: str) -> tuple[int, int]:
        return self.fleet.node_rows.item(self.fleet.row_of[node], CHANGED), self._devices.changed_on(node)


class Claims:
    """Places pods that wait for claims."""

    def __init__(self, cluster: Cluster, devices: Devices, selects: Selects) -> None:
        """`selects` says whether an expression takes a device.

        It raises `InvalidRequest` where it has no answer.
        """
        self.devices = devices
        self._cluster, self._selects = cluster, selects
        self._classes: dict[str, DeviceClass] = {}
        self._refusals: dict[str, _Refusals] = {}
        """By equivalence class of pods."""
        self._verdicts: dict[tuple[tuple[str, ...], DeviceId], tuple[SliceDevice, bool | None]] = {}

    def set_class(self, name: str, found: DeviceClass | None) -> None:
        """Enter a device class, or remove it with None."""
        self._classes.pop(name, None)
        if found is not None:
            self._classes[name] = found
        self._refusals.clear()

    # --- decisions ---

    def hold(self, placement: ClaimPlacement) -> Refusal | None:
        """Hold the chosen devices until `Devices.written` or `drop`. Return None, or the reason why nothing is held.

        Raises:
            NotFound: a card is not there any more. Conflict: a device was taken since it was chosen. Nothing is held.

        """
        self._check_free(placement)
        try:
            for number, claim in enumerate(placement.claims):
                picks = placement.picks_of(number)
                refused = self._assume(claim, self._whole_cards(picks))
                if refused is not None:
                    self._drop(placement)
                    return refused
                results = (
                    DeviceResult(each.request, each.device.id, each.admin, "", consumed=each.consumed) for each in picks
                )
                self.devices.hold_devices(claim.uid, tuple(results))
        except UllageError:
            self._drop(placement)
            raise
        return None

    def _check_free(self, placement: ClaimPlacement) -> None:
        use = self.devices.use_of(self.devices.pools_of(placement.node))
        for pick in placement.picks:
            if pick.admin:
                continue
            if not use.fits(pick.device, pick.consumed):
                raise Conflict(f"{'/'.join(pick.device.id)} was taken meanwhile", code="device-taken")
            use.take(pick.device, pick.consumed)

    def _drop(self, placement: ClaimPlacement) -> None:
        for claim in placement.claims:
            self.devices.drop(claim.uid)

    def place(self, pod: ClaimingPod) -> ClaimPlacement | Unplaced:
        """Return a node that has devices for all unallocated claims of a pod, and the best devices there.

        Of a request with alternatives, the first alternative that any node can serve counts. Otherwise the best node
        counts. A pod whose claims are all allocated needs no node.

        Raises:
            Unavailable: not ready, or expressions cannot be read.

        """
        return at_once(self.placing(pod))

    def placing(self, pod: ClaimingPod) -> Slices[ClaimPlacement | Unplaced]:
        """Return the result of `place` in slices: yield after each node that does not fit, so that other work can run.

        A change on a node that was already examined is found by `hold`.
        """
        self.devices.settle()
        waiting = tuple(claim for claim in pod.claims if claim.allocation is None)
        if not waiting:
            return ClaimPlacement("", (), ())
        choosy = any(len(request.alternatives) > 1 for claim in waiting for request in claim.requests)
        steps, reasons = Steps(_MAX_STEPS_OF_POD), Counter[str]()
        best: ClaimPlacement | None = None
        least: tuple[int, ...] = ()
        refusals = self._refusals_of(pod)
        for node in self._ordered(pod, waiting, reasons):
            if refusals.fleet is not self._cluster.allocator.fleet:
                refusals = self._refusals_of(pod)  # there are other books by now
            known = refusals.current(node)
            lasting = known or self._excluded(pod, node)
            found = lasting or self._devices_on(pod, waiting, node, steps)
            if isinstance(found, str):
                if known is None and (lasting is not None or found == _NO_DEVICES):
                    refusals.record(node, found)
                reasons[found] += 1
                yield
                continue
            placement = ClaimPlacement(node, waiting, found)
            if not choosy:
                return placement
            alternatives = rank(waiting, found)
            if best is None or alternatives < least:
                best, least = placement, alternatives
            if not any(least):
                break
            yield
        return Unplaced(reasons) if best is None else best

    def _refusals_of(self, pod: ClaimingPod) -> _Refusals:
        """Return the refusals of the equivalence class of a pod. A pod that has devices already is in no class."""
        shape, fleet = pod.equivalence_class, self._cluster.allocator.fleet
        if len(self._refusals) >= _MAX_CLASSES:
            self._refusals.clear()
        found = self._refusals.get(shape)
        if found is None or found.fleet is not fleet:
            found = _Refusals(fleet, self.devices)
            self._refusals |= {shape: found} if shape else {}
        return found

    def admission_request(self, pod: ClaimingPod) -> Request:
        """Return a pod as a request in the order of admission: its claims count as whole cards, at least one."""
        count = max(1, min(_count(claim for claim in pod.claims if claim.allocation is None), MAX_CARDS))
        return self._request(pod, count)

    def _ordered(self, pod: ClaimingPod, waiting: Sequence[DeviceClaim], reasons: Counter[str]) -> list[str]:
        """Return all nodes, those that suit that number of cards best first.

        For a pod that also requests cards apart from claims, return the nodes with room for these, and count the
        reasons of the others.
        """
        books, count = self._cluster.allocator, _count(waiting)
        names = [node.name for node in books.fleet.nodes]
        if pod.request is not None:
            offered = self._cluster.offers(pod.request, names, expected=False)
            for refusal, refused in offered.refused:
                reasons[refusal.rejections[0].code.value] += len(refused)
            best = sorted((-score, name) for score, name in zip(offered.scores.tolist(), offered.names, strict=True))
            return [name for _, name in best]
        if not 1 <= count <= MAX_CARDS:
            return sorted(names)
        scores = books.offers(self._request(pod, count)).scores.tolist()
        return [name for _, name in sorted((-score, name) for score, name in zip(scores, names, strict=True))]

    def _excluded(self, pod: ClaimingPod, node: str) -> str | None:
        """Return why a pod may not run on a node, whatever its devices; None if it may."""
        fleet = self._cluster.allocator.fleet
        row = fleet.row_of.get(node)
        if row is None:
            return "node-unknown"
        machine, shut = fleet.nodes[row], closed(fleet, row)
        if shut is not None:
            return shut.code.value
        if (unsuitable := unsuited(machine, pod.nodes)) is not None:
            return unsuitable.code.value
        allocated = (claim.allocation for claim in pod.claims if claim.allocation is not None)
        if not all(each.nodes.allows(node, machine.labels) for each in allocated):
            return "claim-elsewhere"
        return self._shortage(row, pod)

    def _shortage(self, row: int, pod: ClaimingPod) -> str | None:
        if not (pod.cpu_milli or pod.memory_bytes):
            return None
        short = shortfalls(self._cluster.allocator.fleet, row, ResourceRequirement(pod.cpu_milli, pod.memory_bytes))
        return short[0].code.value if short else None

    def _devices_on(
        self, pod: ClaimingPod, waiting: Sequence[DeviceClaim], node: str, steps: Steps
    ) -> tuple[DevicePick, ...] | str:
        """Return the devices on a node, or why there are none."""
        offer = self._offer(node, pod.cards)
        missing = [w.device_class for w in _alternatives(waiting) if w.device_class not in self._classes]
        if missing:
            return f"device-class-missing: {missing[0]}"
        own = Steps(min(MAX_STEPS, steps.left))
        before = own.left
        try:
            found = search(waiting, offer, own)
            if found is None:
                return _NO_DEVICES
            best = self._preferred(pod, waiting, node, offer, found=found, steps=own)
            return (
                best
                if isinstance(best, str)
                else self._leaving_own_cards(pod, waiting, node, offer, found=best, steps=own)
            )
        except SearchExhausted:
            return "search-exhausted"
        finally:
            steps.left -= before - max(own.left, 0)

    def _preferred(
        self,
        pod: ClaimingPod,
        waiting: Sequence[DeviceClaim],
        node: str,
        offer: Offer,
        found: tuple[DevicePick, ...],
        steps: Steps,
    ) -> tuple[DevicePick, ...] | str:
        """Return the devices that were found, with the cards that the books prefer where that is possible.

        The books choose among all cards that suit. If their choice breaks a constraint, they choose among cards that
        are equal in the attribute of the constraint. At last they judge the cards that were found.
        """
        cards = self._whole_cards([pick for pick in found if not pick.every])
        if not cards:
            return found
        served = {pick.request for pick in found if not pick.every and not pick.admin}
        devices = [
            device
            for wanted in _alternatives(waiting)
            if wanted.name in served
            for device, _ in suitable(wanted, offer) or ()
        ]
        card_of = {device.id: self.devices.card(device) for device in devices}
        sets = [card_of.keys(), *groups(waiting, found, devices)]
        usual, *others = ({uuid for id_ in ids if (uuid := card_of[id_]) is not None} for ids in sets)
        refusal: Refusal | None = None
        for among in ([usual], others):
            for choice in self._choices(pod, node, len(cards), among):
                if isinstance(choice, Refusal):
                    refusal = refusal or choice
                    continue
                better = search(waiting, offer, steps, self._among({None, *choice.gpus}))
                if better is not None and rank(waiting, better) == rank(waiting, found):
                    return better
            if refusal is not None:
                return refusal.code.value  # not even one that need not go together
        last = self._choice(pod, node, cards, len(cards))
        return last.code.value if isinstance(last, Refusal) else found

    def _among(self, cards: Collection[str | None]) -> Callable[[SliceDevice], bool]:
        """Return whether a device is on one of these cards, or on none, as a function."""
        return lambda device: self.devices.card(device) in cards

    def _leaving_own_cards(
        self,
        pod: ClaimingPod,
        waiting: Sequence[DeviceClaim],
        node: str,
        offer: Offer,
        found: tuple[DevicePick, ...],
        steps: Steps,
    ) -> tuple[DevicePick, ...] | str:
        """Return these devices, or others that leave the cards that the pod requests apart from claims."""
        if pod.request is None or self._leaves_room(pod.request, node, found):
            return found
        own = self._cluster.allocator.choose_on(pod.request, node)
        if isinstance(own, Refusal):
            return own.code.value
        other = search(waiting, offer, steps, lambda device: self.devices.card_under(device) not in own.gpus)
        fits = other is not None and self._leaves_room(pod.request, node, other)
        return other if other is not None and fits else "no-room-for-both"

    def _leaves_room(self, request: Request, node: str, picks: Iterable[DevicePick]) -> bool:
        """Return whether a request still finds its cards on a node when these devices are taken."""
        books = self._cluster.allocator
        taken = {self.devices.card_under(pick.device) for pick in picks if not pick.admin} - {None}
        with trial(books.fleet):
            if taken:
                cards = tuple(sorted(uuid for uuid in taken if uuid is not None))
                asked = ResourceRequirement(gpu_count=len(cards))
                books.fleet.charge(Allocation(_TRIED, node, asked, cards), force=True)
            return isinstance(books.choose_on(request, node), Choice)

    def _choices(
        self, pod: ClaimingPod, node: str, count: int, among: Iterable[set[str]]
    ) -> Iterator[Choice | Refusal]:
        """Yield what the books choose from each set, the best first; a refusal only where nothing is chosen."""
        chosen = [self._choice(pod, node, sorted(uuids), count) for uuids in among if len(uuids) >= count]
        found = [choice for choice in chosen if isinstance(choice, Choice)]
        yield from sorted(found, key=lambda choice: (-choice.score, choice.gpus)) if found else chosen[:1]

    def _choice(self, pod: ClaimingPod, node: str, uuids: Sequence[str], count: int) -> Choice | Refusal:
        request = self._request(pod, count, CardSelector(uuids=tuple(uuids)))
        return self._cluster.allocator.choose_on(request, node)

    def _request(self, pod: ClaimingPod, count: int, cards: CardSelector = ANY_CARD) -> Request:
        alignment = Alignment(pod.policy or ZonePolicy.BEST_EFFORT, links=pod.links)
        asked = ResourceRequirement(
            pod.cpu_milli, pod.memory_bytes, count, cards=cards, nodes=pod.nodes, alignment=alignment
        )
        return Request(pod.uid, asked, pod.claim)

    def _offer(self, node: str, cards: frozenset[str] | None) -> Offer:
        fleet, pools = self._cluster.allocator.fleet, self.devices.pools_of(node)
        labels = fleet.nodes[fleet.row_of[node]].labels
        devices = [device for pool in pools for device in pool.devices if device.reaches(node, labels)]
        complete = all(pool.complete for pool in pools)
        if cards is not None:
            devices = [device for device in devices if self.devices.card(device) in (None, *cards)]
        return Offer(devices, self.devices.use_of(pools), self._takes, self.devices.is_free, whole=complete)

    def _takes(self, wanted: DeviceAlternative, device: SliceDevice) -> bool | None:
        selectors = (*self._classes[wanted.device_class].selectors, *wanted.selectors)
        key = selectors, device.id
        known = self._verdicts.get(key)
        if known is not None and known[0] is device:
            return known[1]
        try:
            verdict = all(self._selects(each, device) for each in selectors)
        except InvalidRequest as error:
            verdict = None
            self.devices.report("DeviceClass", wanted.device_class, error)
        if len(self._verdicts) >= _MAX_VERDICTS:
            self._verdicts.clear()
        self._verdicts[key] = device, verdict
        return verdict

    def _assume(self, claim: DeviceClaim, cards: Sequence[str]) -> Refusal | None:
        if not cards:
            return None
        asked = ResourceRequirement(
            gpu_count=len(cards),
            cards=CardSelector(uuids=tuple(cards)),
            nodes=EVERY_NODE,
            alignment=Alignment(ZonePolicy.BEST_EFFORT),
        )
        found = self._cluster.assume(Request(claim.uid, asked, self.devices.owner(claim)), cards)
        return found if isinstance(found, Refusal) else None

    def _whole_cards(self, picks: Iterable[DevicePick]) -> tuple[str, ...]:
        found = (self.devices.card(pick.device) for pick in picks if not pick.admin)
        return tuple(uuid for uuid in found if uuid is not None)


def _count(claims: Iterable[DeviceClaim]) -> int:
    """Return how many devices their first alternatives request."""
    return sum(
        request.alternatives[0].count or 1
        for claim in claims
        for request in claim.requests
        if request.alternatives and not request.alternatives[0].admin
    )


def _alternatives(claims: Iterable[DeviceClaim]) -> Iterator[DeviceAlternative]:
    return (wanted for claim in claims for request in claim.requests for wanted in request.alternatives)
