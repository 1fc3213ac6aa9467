"""The simulated placement of a pod, and the holders of each card, as bodies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.explaining.zone_warning import weaker_predictions
from ullage.core.placing.candidates import check_quota
from ullage.core.placing.decision import Candidates, Choice, Decision, Refusal, Scores
from ullage.core.verdict.counted import amounts_on, cores_on
from ullage.core.verdict.sentences import MEANINGS, reject_text
from ullage.core.verdict.stages import Stage
from ullage.model.allocation import AllocationState
from ullage.model.amounts import Amounts
from ullage.model.claim import Request
from ullage.model.counted import counted
from ullage.model.error import InvalidAnnotation, NotFound
from ullage.model.rejection import Rejection
from ullage.server.routes import LongBody
from ullage.wire import simulation as wire
from ullage.wire.allocation_report import AllocationEntry, AllocationReport, CardEntry, Worker
from ullage.wire.dialect import PodReader, PodSettings
from ullage.wire.direct_pods import direct_scheduler
from ullage.wire.pod import (
    DOMAIN,
    PLAIN_DEFAULTS,
    Document,
    PodDefaults,
    PodRequest,
    check_admission,
    check_scheduler,
    compose_request,
    parse_pod,
)
from ullage.wire.unread_words import check_misspelt, unread_words

SCHEDULERS = ("ullage", direct_scheduler("ullage"))
"""The names of schedulers in the pods that are simulated."""

_NOT_CREATED = "simulated"
"""The uid of a pod that does not have one yet."""


def simulate_schedule(
    allocator: FleetAllocator,
    pod: Document | bytes,
    *,
    domain: str = DOMAIN,
    defaults: PodDefaults = PLAIN_DEFAULTS,
    schedulers: Sequence[str] = SCHEDULERS,
) -> LongBody[wire.SimulateSchedule]:
    """Return where a pod would be placed now and why, without changes. `pod` is a body, or a parsed pod.

    A wrong annotation and an unknown pool are part of the response, like a refusal. An error of admission is a warning.

    Raises:
        InvalidRequest: the body cannot be read, a field of the pod has a wrong type, or the pod names
            a scheduler that is none of `schedulers`.
        Unavailable: the allocator is not ready.

    """
    document = parse_pod(pod) if isinstance(pod, bytes) else pod
    check_scheduler(document, schedulers)
    nodes = len(allocator.fleet.nodes)
    try:
        settings = PodSettings(domain, defaults=defaults)
        reader = PodReader(settings)
        composed = reader(document) or compose_request(document, domain, defaults=defaults)
        request = Request(composed.uid or _NOT_CREATED, composed.requirement, composed.claim)
        decision = allocator.simulate(request)
    except (InvalidAnnotation, NotFound) as error:
        refused = wire.SimulateSchedule(schedule_result=wire.ScheduleResult(), error=wire.pod_error(error, nodes))
        return lambda: refused
    simulation = _Simulation(allocator, request, decision)
    unread = unread_words(document, composed, settings)
    return lambda: simulation.answer((*unread, *composed.warnings, *_admission(document, composed, settings)))


def allocation_report(fleet: Fleet, shown: Container[str]) -> AllocationReport:
    """Return all cards and those of their holders that are shown, also executors.

    `state` shows whether an allocation is assumed.
    """
    cards = {gpu.uuid: gpu for gpu in fleet.cards}
    ledger = sorted((uid, allocation) for uid, allocation in fleet.ledger.items() if uid in shown)
    workers = {uid: Worker.of(allocation) for uid, allocation in ledger}
    on_node: dict[str, list[Worker]] = {node.name: [] for node in fleet.nodes}
    for uid, allocation in ledger:
        on_node.setdefault(allocation.node, []).append(workers[uid])
    return AllocationReport(
        gpu_store={uuid: _card(fleet, card) for uuid, card in fleet.card_of.items()},
        node_worker_store={node: tuple(held) for node, held in on_node.items()},
        allocation={uid: AllocationEntry.of(allocation, cards) for uid, allocation in ledger},
        gpu_to_worker_map={
            uuid: tuple(workers[uid] for uid in sorted(fleet.holders[card]) if uid in shown)
            for uuid, card in fleet.card_of.items()
        },
    )


def _admission(document: Document, pod: PodRequest, settings: PodSettings) -> tuple[str, ...]:
    if pod.further:
        others = ", ".join(each.family for each in pod.further)
        return (f"it also requests cards of {others}; this is the place of those of {pod.family} alone",)
    try:
        check_misspelt(document, settings)
        check_admission(pod)
    except InvalidAnnotation as error:
        return (f"admission would refuse it: {error.message}",)
    return ()


def _card(fleet: Fleet, card: int) -> CardEntry:
    """Return a card of the ledger. Every allocation that is not assumed counts as bound, also a releasing one."""
    whole = Amounts(int(fleet.compute_total[card]), int(fleet.vram_total[card]))
    held = [
        (fleet.ledger[uid].shown_state, whole if charge is None else Amounts(charge.compute, charge.vram))
        for uid, charge in fleet.holders[card].items()
    ]
    assumed = Amounts.sum_of(amounts for state, amounts in held if state is AllocationState.ASSUMED)
    bound = Amounts.sum_of(amounts for state, amounts in held if state is not AllocationState.ASSUMED)
    return CardEntry.of(fleet.cards[card], fleet.nodes[int(fleet.card_row[card])].name, bound=bound, assumed=assumed)


class _Simulation:
    """One decision in full detail. Only the scores come from the current books, whose strategies may have learned."""

    def __init__(self, allocator: FleetAllocator, request: Request, decision: Decision) -> None:
        self._fleet = allocator.fleet.copy(apart=True)
        self._rules, self._request, self._decision = allocator.rules, request, decision
        self._stages = decision.candidates.stages
        others = {node: self._other_cards(node, set(uuids)) for node, uuids in decision.candidates.by_node.items()}
        scored = Candidates({node: uuids for node, uuids in others.items() if uuids}, ())
        self._other_scores = allocator.score(request, scored)

    def answer(self, warnings: tuple[str, ...]) -> wire.SimulateSchedule:
        """Return the whole response."""
        outcome = self._decision.outcome
        if isinstance(outcome, Choice):
            warnings = (*warnings, *weaker_predictions(self._fleet, [outcome.node]))
        feasible = len(self._decision.candidates.by_node) if isinstance(outcome, Choice) else 0
        return wire.SimulateSchedule(
            schedule_result=wire.ScheduleResult(
                suggested_host=outcome.node if isinstance(outcome, Choice) else "",
                evaluated_nodes=len(self._fleet.nodes),
                feasible_nodes=feasible,
            ),
            filter_detail=wire.FilterDetail(filter_stage_details=tuple(self._filters())),
            error=self._error(outcome) if isinstance(outcome, Refusal) else None,
            gpu_scheduler_state=self._state(outcome.gpus if isinstance(outcome, Choice) else ()),
            nodes=self._nodes(),
            quota=self._quota(),
            warnings=warnings,
        )

    def _filters(self) -> list[wire.FilterStage]:
        before: Sequence[str] = self._fleet.uuids(range(len(self._fleet.cards)))
        stages = []
        for stage in self._stages:
            removed = [wire.removal(rejection, reject_text(rejection)) for rejection in stage.removed]
            stages.append(
                wire.filter_stage(
                    stage.filter, stage.kind.value, before, stage.kept, removed=removed, reached=stage.reached
                )
            )
            before = stage.kept
        return stages

    # --- why not ---

    def _error(self, refusal: Refusal) -> wire.SimulationError:
        nodes = len(self._fleet.nodes)
        reason = _reason(refusal)
        return wire.SimulationError(
            type=wire.UNPLACEABLE,
            message=f"0 of {counted(nodes, 'node')} fit: {reason}",
            code=refusal.code.value,
            num_all_nodes=nodes,
            diagnosis=wire.Diagnosis(
                pre_filter_msg=reason,
                unschedulable_plugins=tuple(wire.filter_name(stage.filter) for stage in self._stages if stage.removed),
                node_to_status=self._per_node(reason),
            ),
        )

    def _per_node(self, otherwise: str) -> dict[str, str]:
        """Return why each node does not fit: the reason of the stage that removed its last cards."""
        found = {node.name: otherwise if node.gpus else "it has no cards" for node in self._fleet.nodes}
        for stage in self._stages:
            if stage.removed and stage.removed[0].node is None:
                found.update(self._lost(stage))
            found.update(_by_node(stage))
        return found

    def _lost(self, stage: Stage) -> dict[str, str]:
        """Return the reason of a stage without a reason per node, for nodes that lost cards by it."""
        fleet, kept, sentence = self._fleet, set(stage.kept), _sentence(stage.removed[0])
        lost = (card for card, gpu in enumerate(fleet.cards) if gpu.uuid not in kept)
        return {fleet.nodes[int(fleet.card_row[card])].name: sentence for card in lost}

    # --- where ---

    def _state(self, chosen: tuple[str, ...]) -> wire.GpuSchedulerState:
        fleet, by_node = self._fleet, self._decision.candidates.by_node
        return wire.GpuSchedulerState(
            node_gpus={node: tuple(_card(fleet, fleet.card_of[u]) for u in uuids) for node, uuids in by_node.items()},
            valid_scores=_rounded(self._decision.scores),
            other_scores=_rounded(self._other_scores),
            final_gpus=chosen,
        )

    def _other_cards(self, node: str, uuids: set[str]) -> tuple[str, ...]:
        on_node = self._fleet.uuids(self._fleet.cards_on(self._fleet.row_of[node]))
        return tuple(uuid for uuid in on_node if uuid not in uuids)

    def _nodes(self) -> dict[str, wire.NodeVerdict]:
        fleet, asked, rules = self._fleet, self._request.requirement, self._rules
        scores = self._decision.scores.nodes
        return {
            node.name: wire.NodeVerdict(
                schedulable=node.schedulable,
                cpu_milli=wire.SimulatedRoom.of(asked.cpu_milli, int(fleet.cpu_free[row]), int(fleet.cpu_total[row])),
                memory_bytes=wire.SimulatedRoom.of(
                    asked.memory_bytes, int(fleet.memory_free[row]), int(fleet.memory_total[row])
                ),
                workers=fleet.workers(row),
                max_workers=rules.workers_per_node or None,
                below_cap=fleet.workers(row) < rules.cap,
                score=round(scores[node.name]) if node.name in scores else None,
            )
            for row, node in enumerate(fleet.nodes)
        }

    def _quota(self) -> wire.QuotaVerdict:
        """Return the verdict of the quotas, on each kind of card for which the request counts differently."""
        fleet, rules, request = self._fleet, self._rules, self._request
        kinds = {
            (amounts_on(fleet, card, request), cores_on(fleet, card, request)): card for card in range(len(fleet.cards))
        }
        by_kind = [
            check_quota(fleet, rules, request, [card] * request.requirement.gpu_count) for card in kinds.values()
        ]
        refusals = dict.fromkeys(rejection for rejections in by_kind for rejection in rejections)
        return wire.QuotaVerdict(
            namespace=request.claim.namespace,
            levels=rules.quotas.levels(request.claim.namespace),
            allowed=not refusals or not all(by_kind),
            refusals=tuple(wire.quota_refusal(refusal, reject_text(refusal)) for refusal in refusals),
        )


def _reason(refusal: Refusal) -> str:
    """Return the numbers of a quota that refused, else how many cards or nodes have each reason."""
    first = refusal.rejections[0] if refusal.rejections else None
    if first is not None and first.quota is not None:
        return _sentence(first)
    counts = Counter(rejection.code for rejection in refusal.rejections)
    parts = (f"{MEANINGS[code]} ({code.value}, {number})" for code, number in counts.items())
    return "; ".join(parts) or MEANINGS[refusal.code]


def _rounded(scores: Scores) -> dict[str, dict[str, int]]:
    """Return scores of cards as whole numbers, which clients of this document expect."""
    return {node: {uuid: round(score) for uuid, score in cards.items()} for node, cards in scores.cards.items()}


def _sentence(rejection: Rejection) -> str:
    return f"{reject_text(rejection)} ({rejection.code.value})"


def _by_node(stage: Stage) -> dict[str, str]:
    """Return the reason of a stage for each node, from the first of its cards."""
    return {rejection.node: _sentence(rejection) for rejection in reversed(stage.removed) if rejection.node is not None}
