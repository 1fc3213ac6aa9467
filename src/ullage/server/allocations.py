"""Handlers of requests for cards: decode, call a use case, wait until it is durable, respond."""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ullage.core.allocator import Decision
from ullage.core.books.capacity import NodeCapacity
from ullage.core.books.departed import Freed
from ullage.core.books.fleet import Fleet
from ullage.core.evicting.preemption import NoPreemption
from ullage.core.explaining.zone_warning import weaker_predictions, width_trap
from ullage.core.placing.adjust import Adjustment, AmountsChange, ScalingRefusal
from ullage.core.placing.decision import Choice, Refusal
from ullage.core.verdict.sentences import MEANINGS, first_text
from ullage.core.verdict.stages import Stage
from ullage.model.allocation import Allocation, Charge
from ullage.model.amounts import Amounts, KnownAmounts
from ullage.model.claim import PRIORITIES, Claim, Qos, Request
from ullage.model.error import PlanChanged, invalid
from ullage.model.grant import Grant
from ullage.model.name import check_name
from ullage.model.nomination import Nomination
from ullage.model.part import Part, check_vram, parse_percent, parse_tflops
from ullage.model.quantity import PPM, format_decimal, parse_bytes
from ullage.model.resources import show_milli
from ullage.server import bodies
from ullage.server.durable import durable
from ullage.server.placements import placement_body
from ullage.server.preemption import attempt_body, nomination_body, preemption_body
from ullage.server.rejections import rejection_body
from ullage.server.room_plan import room_plan
from ullage.server.routes import Answer, Endpoint
from ullage.server.searches import TRIES, Searches
from ullage.service.allocations import AllocationRequests, Outcome
from ullage.service.service import UllageService
from ullage.wire import allocation as wire
from ullage.wire.preemption import NominationBody

BODY_LIMIT = 1 << 20
MAX_SECONDS = 10 * 366 * 24 * 3600
_LEAVING = 202
"""The HTTP status while a workload that was asked to leave still runs."""


class Refused(Exception):
    """A refusal, to be sent as HTTP 409."""

    def __init__(self, refusal: Refusal, warnings: Iterable[str] = ()) -> None:
        super().__init__(refusal.code.value)
        self.refusal = refusal
        self.warnings = tuple(warnings)


async def on_refused(_: HttpRequest, error: Exception) -> Response:
    """Handle a refusal for Starlette."""
    assert isinstance(error, Refused)
    body = msgspec.json.encode(refusal_body(error.refusal, error.warnings))
    return Response(body, 409, media_type="application/json")


class AllocationApi:
    """Handlers over one service."""

    def __init__(self, service: UllageService, searches: Searches) -> None:
        self._service = service
        self._searches = searches

    @property
    def _allocations(self) -> AllocationRequests:
        return self._service.allocations

    @property
    def _fleet(self) -> Fleet:
        return self._service.state.fleet

    def endpoints(self) -> list[Endpoint]:
        """Return all routes of requests for cards."""
        a = "/v1/allocations"
        return [
            Endpoint("GET", a, self.allocations, "requests that hold cards", answer=list[wire.AllocationBody]),
            Endpoint(
                "POST",
                a,
                self.create,
                "give cards to a request, or evict for it",
                answer=wire.AllocationBody,
                body=wire.CreateAllocation,
                status=201,
                others=((_LEAVING, NominationBody),),
            ),
            Endpoint(
                "GET",
                "/v1/nominations",
                self.nominations,
                "requests that room is kept for",
                answer=list[NominationBody],
            ),
            Endpoint("GET", f"{a}/{{uid}}", self.get, "one allocation", answer=wire.AllocationBody),
            Endpoint("DELETE", f"{a}/{{uid}}", self.delete, "free its cards", answer=wire.FreedBody, query=("gpu",)),
            Endpoint(
                "POST", f"{a}/{{uid}}/commit", self.commit, "make an assumption bound", answer=wire.AllocationBody
            ),
            Endpoint("POST", f"{a}/{{uid}}/forget", self.forget, "undo whatever the uid holds"),
            Endpoint(
                "POST",
                f"{a}/{{uid}}/release",
                self.release,
                "its owner was told to go",
                answer=wire.AllocationBody,
                body=wire.ReleaseAllocation,
                status=_LEAVING,
            ),
            Endpoint(
                "POST",
                f"{a}/{{uid}}/adjust",
                self.adjust,
                "change how much of its cards it takes",
                answer=wire.AdjustmentBody,
                body=wire.AdjustAllocation,
            ),
            Endpoint(
                "GET", "/v1/nodes/{node}/capacity", self.capacity, "a node's cards in sum", answer=wire.CapacityBody
            ),
            Endpoint("GET", "/v1/unused-nodes", self.unused, "nodes whose cards nobody holds", answer=list[str]),
            Endpoint(
                "POST",
                "/v1/plan",
                self.plan,
                "would it fit, where, and why",
                answer=wire.PlanBody,
                body=wire.PlanRequest,
            ),
        ]

    # --- requests ---

    async def allocations(self, _: HttpRequest) -> list[wire.AllocationBody]:
        return [self.body(allocation) for allocation in self._allocations.all()]

    async def get(self, request: HttpRequest) -> wire.AllocationBody:
        return self.body(self._allocations.get(_uid(request)))

    async def create(self, request: HttpRequest) -> wire.AllocationBody | Answer:
        body = await bodies.read_body(request, wire.CreateAllocation, BODY_LIMIT)
        asked = self.request(body)
        if body.preempt:
            return await self._preempt(request, body, asked)
        if body.gpus is None and body.commit:
            outcome = await durable(self._allocations.alloc, asked)
        elif body.commit:
            outcome = await durable(self._allocations.bind, asked, body.gpus)
        else:
            outcome = await durable(self._allocations.assume, asked, body.gpus)
        return self.body(self._accepted(outcome, asked))

    async def _preempt(
        self, request: HttpRequest, body: wire.CreateAllocation, asked: Request
    ) -> wire.AllocationBody | Answer:
        if body.gpus is not None or not body.commit:
            raise invalid("preempt", True, "cards are chosen and bound; leave out gpus and commit")
        outcome = await self._placed_or_evicting(request, asked)
        if isinstance(outcome, Nomination):
            return Answer(_LEAVING, nomination_body(self._fleet, outcome))
        return self.body(self._accepted(outcome, asked))

    async def _placed_or_evicting(self, request: HttpRequest, asked: Request) -> Outcome | Nomination:
        """Search for victims if need be; search again, some times, if those found do not help any more."""
        preemptions = self._service.preemptions
        for left in reversed(range(TRIES)):
            if not preemptions.searches_for(asked):
                return await durable(preemptions.alloc, asked)
            found = await self._searches.result_for(request, lambda: preemptions.planning(asked))
            try:
                return await durable(preemptions.carry_out, asked, found)
            except PlanChanged:
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def _accepted(self, outcome: Allocation | Refusal, asked: Request) -> Allocation:
        if isinstance(outcome, Refusal):
            raise Refused(outcome, self._trap(asked))
        return outcome

    def _trap(self, asked: Request) -> list[str]:
        """Return what no node can satisfy of a refused request."""
        trap = width_trap(self._fleet, self._service.policy, asked.requirement)
        return [] if trap is None else [trap]

    async def nominations(self, _: HttpRequest) -> list[NominationBody]:
        return [nomination_body(self._fleet, nomination) for nomination in self._service.preemptions.nominations()]

    async def commit(self, request: HttpRequest) -> wire.AllocationBody:
        return self.body(await durable(self._allocations.commit, _uid(request)))

    async def forget(self, request: HttpRequest) -> None:
        await durable(self._allocations.forget, _uid(request))

    async def release(self, request: HttpRequest) -> wire.AllocationBody:
        body = await bodies.read_body(request, wire.ReleaseAllocation, BODY_LIMIT)
        within_s = None if body.within_s is None else seconds_of("within_s", body.within_s)
        return self.body(await durable(self._allocations.release, _uid(request), within_s))

    async def delete(self, request: HttpRequest) -> wire.FreedBody:
        named = request.query_params.getlist("gpu") or None
        freed = await durable(self._allocations.dealloc, _uid(request), named)
        return freed_body(freed)

    async def adjust(self, request: HttpRequest) -> wire.AdjustmentBody:
        body = await bodies.read_body(request, wire.AdjustAllocation, BODY_LIMIT)
        change = AmountsChange(amounts_of("request", body.request), amounts_or_none("limit", body.limit))
        check_vram(change.request)
        outcome = await durable(self._allocations.adjust, _uid(request), change, body.dry_run)
        if isinstance(outcome, Refusal):
            raise Refused(outcome)
        return _adjustment(outcome, self.body(outcome.allocation))

    async def plan(self, request: HttpRequest) -> wire.PlanBody:
        body = await bodies.read_body(request, wire.PlanRequest, BODY_LIMIT)
        qos = _qos(body.qos)
        claim = Claim(
            namespace=check_name("namespace", body.namespace),
            limit=amounts_or_none("limit", body.limit),
            qos=qos,
            priority=PRIORITIES[qos] if body.priority is None else body.priority,
        )
        uid = body.uid if body.uid == wire.UNNAMED else check_name("uid", body.uid)
        resreq = bodies.requirement(body.resreq, self._service.numa)
        asked = self._service.quotas.admit(Request(uid, resreq, claim, body.strategy))
        plan = self._plan(asked, self._allocations.simulate(asked))
        if plan.choice is not None:
            return plan
        if body.preempt:
            preempting = self._service.preemptions.planning
            found = await self._searches.result_for(request, lambda: preempting(asked))
            plan = msgspec.structs.replace(plan, preemption=preemption_body(self._fleet, found))
        if body.move:
            planning = self._service.consolidations.planning
            moves = await self._searches.result_for(request, lambda: planning(asked, 1, None))
            plan = msgspec.structs.replace(plan, room=room_plan(moves))
        return plan

    async def capacity(self, request: HttpRequest) -> wire.CapacityBody:
        return _capacity(self._allocations.capacity(check_name("node", request.path_params["node"])))

    async def unused(self, _: HttpRequest) -> list[str]:
        return list(self._allocations.unused_nodes())

    # --- conversion ---

    def request(self, body: wire.CreateAllocation) -> Request:
        """Return the request in a body."""
        qos, now = _qos(body.qos), time.time()
        claim = Claim(
            namespace=check_name("namespace", body.namespace),
            workload=body.workload,
            pod=body.pod,
            pod_uid=body.pod_uid,
            limit=amounts_or_none("limit", body.limit),
            qos=qos,
            priority=PRIORITIES[qos] if body.priority is None else body.priority,
            created_at=now,
            protected_until=now + seconds_of("protected_s", body.protected_s) if body.protected_s else 0.0,
            labels=body.labels,
        )
        resreq = bodies.requirement(body.resreq, self._service.numa)
        return self._service.quotas.admit(Request(check_name("uid", body.uid), resreq, claim, body.strategy))

    def body(self, allocation: Allocation) -> wire.AllocationBody:
        """Return the body of an allocation."""
        claim = allocation.claim
        assert claim is not None
        return wire.AllocationBody(
            uid=allocation.id,
            state=allocation.state.value,
            node=allocation.node,
            gpus=self._gpus(allocation.gpus, allocation.charges),
            resreq=str(allocation.requirement),
            limit=None if claim.limit is None else part_map(claim.limit),
            namespace=claim.namespace,
            workload=claim.workload,
            pod=claim.pod,
            pod_uid=claim.pod_uid,
            qos=claim.qos.value,
            priority=claim.priority,
            assumed_at=allocation.assumed_at,
            bound_at=allocation.bound_at,
            release_by=allocation.release_by,
            placement=placement_body(allocation.placement),
            unconfirmed=self._service.observations.is_unconfirmed(allocation),
        )

    def _gpus(self, uuids: tuple[str, ...], charges: tuple[Charge, ...]) -> list[wire.AllocatedGpu]:
        return [_gpu(self._fleet, uuid, charges[position] if charges else None) for position, uuid in enumerate(uuids)]

    def _plan(self, asked: Request, decision: Decision) -> wire.PlanBody:
        outcome, strategy = decision.outcome, self._service.state.allocator.rules.strategy_of(asked)
        workload = self._service.learning.workload if strategy.on(self._fleet) is not strategy else None
        choice = None
        if isinstance(outcome, Choice):
            gpus = self._gpus(outcome.gpus, outcome.charges)
            choice = wire.ChoiceBody(
                node=outcome.node, gpus=gpus, score=outcome.score, placement=placement_body(outcome.placement)
            )
        return wire.PlanBody(
            choice=choice,
            refusal=refusal_body(outcome, self._trap(asked)) if isinstance(outcome, Refusal) else None,
            stages=[_stage(stage) for stage in decision.candidates.stages],
            node_scores=decision.scores.nodes,
            gpu_scores=decision.scores.cards,
            strategy=strategy.name,
            learned_from=None if workload is None else workload.tasks,
            terms=dict(decision.terms),
            warnings=list(weaker_predictions(self._fleet, [choice.node])) if choice else [],
        )


def freed_body(freed: Freed) -> wire.FreedBody:
    """Return the body of a deallocation."""
    return wire.FreedBody(
        uid=freed.uid,
        gpus=list(freed.gpus),
        already_gone=freed.already_gone,
        unknown=freed.unknown,
        not_held=list(freed.not_held),
        not_named=list(freed.not_named),
    )


def refusal_body(refusal: Refusal, warnings: Iterable[str] = ()) -> wire.RefusalBody:
    """Return the body of a refusal."""
    scaling = refusal if isinstance(refusal, ScalingRefusal) else None
    return wire.RefusalBody(
        code=refusal.code.value,
        message=first_text(refusal.rejections) if refusal.rejections else MEANINGS[refusal.code],
        curable=refusal.curable,
        rejections=[rejection_body(rejection) for rejection in refusal.rejections],
        stages=[_stage(stage) for stage in refusal.stages],
        remain=None if scaling is None else _amounts(scaling.remain, scaling.known),
        max_request=None if scaling is None else _amounts(scaling.max_request, scaling.known),
        attempts=[attempt_body(attempt) for attempt in refusal.attempts] if isinstance(refusal, NoPreemption) else [],
        warnings=list(warnings),
    )


def _capacity(capacity: NodeCapacity) -> wire.CapacityBody:
    pairs = ("total", "available", "effective", "virtual", "virtual_available", "deficit")
    amounts = {name: getattr(capacity, name) for name in pairs}
    return wire.CapacityBody(
        node=capacity.node,
        **{name: _pair((pair.compute_gflops, pair.vram_bytes)) for name, pair in amounts.items()},
        cards=capacity.cards,
        managed=capacity.managed,
        models=list(capacity.models),
        workers=capacity.workers,
        workers_per_card=capacity.workers_per_card,
    )


def _stage(stage: Stage) -> wire.StageBody:
    return wire.StageBody(
        name=stage.filter,
        kind=stage.kind.value,
        reached=stage.reached,
        before=stage.before,
        after=stage.after,
        removed=[rejection_body(rejection) for rejection in stage.removed],
    )


def _gpu(fleet: Fleet, uuid: str, charge: Charge | None) -> wire.AllocatedGpu:
    card = fleet.card_of.get(uuid)
    if card is None:
        known = (None, None) if charge is None else (charge.compute, charge.vram)
        return wire.AllocatedGpu(uuid=uuid, compute_gflops=known[0], vram_bytes=known[1], isolation="shared")
    grant, slot = Grant.of(fleet.cards[card], charge), charge.slot if charge else None
    return wire.AllocatedGpu(
        uuid=uuid,
        compute_gflops=grant.compute_gflops,
        vram_bytes=grant.vram_bytes,
        isolation=grant.isolation.value,
        partition=slot.template if slot else None,
        slot_start=slot.start if slot else None,
        slot_end=slot.end if slot else None,
        isolation_group=slot.group if slot else None,
    )


def _adjustment(outcome: Adjustment, allocation: wire.AllocationBody) -> wire.AdjustmentBody:
    return wire.AdjustmentBody(
        remain=_amounts(outcome.remain, outcome.known),
        delta_request=_amounts(outcome.delta_request, outcome.known),
        delta_limit=_amounts(outcome.delta_limit, outcome.known),
        allocation=allocation,
    )


def _pair(amounts: tuple[int, int]) -> wire.PairBody:
    compute, vram = amounts
    return wire.PairBody(compute_gflops=compute, vram_bytes=vram)


def _amounts(amounts: Amounts, known: KnownAmounts) -> wire.AmountsBody:
    """Return amounts of a card; unknown ones are in millionths of it."""
    return wire.AmountsBody(
        compute_gflops=amounts.compute if known.compute else None,
        compute_percent=None if known.compute else amounts.compute * 100 / PPM,
        vram_bytes=amounts.vram if known.vram else None,
        vram_percent=None if known.vram else amounts.vram * 100 / PPM,
    )


def part_map(amounts: Part) -> wire.PartMap:
    """Return amounts of each card for a body: TFLOPS and percent as exact text, vram in bytes; nothing for 0."""
    return wire.PartMap(
        tflops=show_milli(amounts.compute_gflops) if amounts.compute_gflops else None,
        percent=format_decimal(amounts.compute_ppm * 100) if amounts.compute_ppm else None,
        vram=amounts.vram_bytes or None,
    )


def _qos(text: str) -> Qos:
    if text not in set(Qos):
        raise invalid("qos", text, f"choose one of {', '.join(Qos)}")
    return Qos(text)


def seconds_of(field: str, value: float) -> float:
    """Return a duration of a body, in seconds."""
    if not 0 <= value <= MAX_SECONDS:
        raise invalid(field, value, f"0 to {MAX_SECONDS} seconds are needed")
    return value


def amounts_of(field: str, part: wire.PartMap) -> Part:
    """Return the amounts of each card in a body; `field` names it in errors."""
    tflops, percent, vram = part.tflops, part.percent, part.vram
    if tflops and percent:
        raise invalid(f"{field}.percent", percent, "tflops are given too; keep one of the two")
    return Part(
        0 if tflops is None else parse_tflops(str(tflops), f"{field}.tflops"),
        0 if vram is None else parse_bytes(str(vram), f"{field}.vram"),
        0 if percent is None else parse_percent(str(percent), f"{field}.percent"),
    )


def amounts_or_none(field: str, part: wire.PartMap | None) -> Part | None:
    """Return the same, or None for an omitted part."""
    return None if part is None else amounts_of(field, part)


def _uid(request: HttpRequest) -> str:
    return check_name("uid", request.path_params["uid"])
