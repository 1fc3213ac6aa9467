"""Handlers of requests for cards: decode, call a use case, wait until it is durable, respond."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ullage.core.books.fleet import Fleet
from ullage.core.evicting.preemption import NoPreemption, PreemptionAnswer
from ullage.core.explaining.zone_warning import weaker_predictions, width_trap
from ullage.core.placing.adjust import Adjustment, AmountsChange, ScalingRefusal
from ullage.core.placing.decision import Choice, Decision, Refusal
from ullage.core.verdict.sentences import MEANINGS, first_text
from ullage.core.verdict.stages import Stage
from ullage.model.allocation import Allocation, Charge
from ullage.model.amounts import Amounts, KnownAmounts
from ullage.model.choice import parse_choice
from ullage.model.claim import PRIORITIES, Claim, Qos, Request
from ullage.model.error import PlanChanged, invalid
from ullage.model.grant import Grant
from ullage.model.identity import Role
from ullage.model.name import check_name
from ullage.model.nomination import Nomination
from ullage.model.part import Part, check_vram, parse_percent, parse_tflops
from ullage.model.quantity import PPM, format_percent, parse_bytes
from ullage.model.resources import show_milli
from ullage.server import bodies
from ullage.server.access import Authorizer, Whose, needs
from ullage.server.durable import durable
from ullage.server.parameters import count_of, flag_of
from ullage.server.placements import placement_body
from ullage.server.preemption import attempt_body, nomination_body, preemption_body
from ullage.server.rejections import rejection_body
from ullage.server.repeated import repeat_warnings
from ullage.server.room_plan import room_plan
from ullage.server.routes import Answer, LongBody, encoded, route
from ullage.server.searches import Searches, retried
from ullage.service.allocations import AllocationRequests, Outcome
from ullage.service.service import UllageService
from ullage.wire import allocation as wire
from ullage.wire.body import body_of
from ullage.wire.cluster_view import ClusterPlan
from ullage.wire.preemption import NominationBody

BODY_LIMIT = 1 << 20
MAX_SECONDS = 10 * 366 * 24 * 3600
_ACCEPTED = 202
"""The HTTP status while a workload that was asked to end still runs."""
_REFUSED = 409
"""The HTTP status of a refusal."""


class Refused(Exception):
    """A refusal, to be sent as HTTP 409."""

    def __init__(self, refusal: Refusal, warnings: Iterable[str] = ()) -> None:
        super().__init__(refusal.code.value)
        self.refusal = refusal
        self.warnings = tuple(warnings)


async def on_refused(_: HttpRequest, error: Exception) -> Response:
    """Handle a refusal for Starlette."""
    assert isinstance(error, Refused)
    body = await encoded(lambda: refusal_body(error.refusal, error.warnings))
    return Response(body, _REFUSED, media_type="application/json")


class AllocationApi:
    """Handlers over one service."""

    def __init__(self, service: UllageService, searches: Searches) -> None:
        self._service, self._authorizer = service, Authorizer(service)
        self._searches = searches

    @property
    def _allocations(self) -> AllocationRequests:
        return self._service.allocations

    @property
    def _fleet(self) -> Fleet:
        return self._service.state.fleet

    # --- requests ---

    @route("GET", "/v1/allocations", "allocations")
    @needs(Role.VIEWER)
    async def list_allocations(self, request: HttpRequest) -> LongBody[list[wire.AllocationBody]]:
        """Return all requests that hold cards."""
        fleet, only = self._fleet, self._authorizer.only_owner(request)
        found = [each for each in self._allocations.all() if only is None or _owner(each) == only]
        unconfirmed = {allocation.id for allocation in self._service.observations.unconfirmed()}
        return lambda: [_allocation(fleet, each, unconfirmed=each.id in unconfirmed) for each in found]

    @route("GET", "/v1/allocations/{uid}", "allocations")
    @needs(Role.VIEWER, Whose.SHOWN)
    async def get_allocation(self, request: HttpRequest) -> wire.AllocationBody:
        """Return the allocation of a request."""
        return self.body(self._allocations.get(_uid(request)))

    @route(
        "POST",
        "/v1/allocations",
        "allocations",
        body=wire.CreateAllocation,
        status=201,
        others=((_ACCEPTED, NominationBody), (_REFUSED, wire.RefusalBody)),
    )
    @needs(Role.USER)
    async def create_allocation(self, request: HttpRequest) -> wire.AllocationBody | Answer:
        """Place a request; with `preempt` evict others for it."""
        body = await bodies.read_body(request, wire.CreateAllocation, BODY_LIMIT)
        asked = self.request(request, body)
        warnings = repeat_warnings(self._service.state.allocator.held(asked.uid), asked)
        if body.preempt:
            return await self._preempt(request, body, asked, warnings)
        if body.gpus is None and body.commit:
            outcome = await durable(self._allocations.alloc, asked)
        elif body.commit:
            outcome = await durable(self._allocations.bind, asked, body.gpus)
        else:
            outcome = await durable(self._allocations.assume, asked, body.gpus)
        return self.body(self._accepted(outcome, asked), warnings)

    async def _preempt(
        self, request: HttpRequest, body: wire.CreateAllocation, asked: Request, warnings: list[str]
    ) -> wire.AllocationBody | Answer:
        if body.gpus is not None or not body.commit:
            raise invalid("preempt", True, "cards are chosen and bound; leave out gpus and commit")
        outcome = await retried(lambda: self._place_or_evict(request, asked))
        if isinstance(outcome, Nomination):
            return Answer(_ACCEPTED, nomination_body(self._fleet, outcome))
        return self.body(self._accepted(outcome, asked), warnings)

    async def _place_or_evict(self, request: HttpRequest, asked: Request) -> Outcome | Nomination:
        """Place a request, or search for victims and evict them."""
        preemptions = self._service.preemptions
        if not preemptions.searches_for(asked):
            return await durable(preemptions.alloc, asked)
        found = await self._searches.result_for(request, lambda: preemptions.planning(asked))
        return await durable(preemptions.carry_out, asked, found)

    def _accepted(self, outcome: Allocation | Refusal, asked: Request) -> Allocation:
        if isinstance(outcome, Refusal):
            raise Refused(outcome, self._never_fits(asked))
        return outcome

    def _never_fits(self, asked: Request) -> list[str]:
        """Return a warning if no node can ever satisfy a refused request."""
        trap = width_trap(self._fleet, self._service.policy, asked.requirement)
        return [] if trap is None else [trap]

    @route("GET", "/v1/nominations", "allocations")
    @needs(Role.VIEWER)
    async def list_nominations(self, request: HttpRequest) -> list[NominationBody]:
        """Return the requests for which room is reserved."""
        only = self._authorizer.only_owner(request)
        found = self._service.preemptions.nominations()
        return [nomination_body(self._fleet, each) for each in found if only in (None, each.request.claim.owner)]

    @route("POST", "/v1/allocations/{uid}/commit", "allocations")
    @needs(Role.USER, Whose.OWN)
    async def commit_allocation(self, request: HttpRequest) -> wire.AllocationBody:
        """Commit an assumed allocation: it is bound."""
        return self.body(await durable(self._allocations.commit, _uid(request)))

    @route("POST", "/v1/allocations/{uid}/forget", "allocations")
    @needs(Role.USER, Whose.OWN)
    async def forget_allocation(self, request: HttpRequest) -> None:
        """Release everything that a request holds."""
        await durable(self._allocations.forget, _uid(request))

    @route("POST", "/v1/allocations/{uid}/release", "allocations", body=wire.ReleaseAllocation, status=_ACCEPTED)
    @needs(Role.USER, Whose.OWN)
    async def release_allocation(self, request: HttpRequest) -> wire.AllocationBody:
        """Record that the owner was asked to stop."""
        body = await bodies.read_body(request, wire.ReleaseAllocation, BODY_LIMIT)
        within_s = None if body.within_s is None else seconds_of("within_s", body.within_s)
        return self.body(await durable(self._allocations.release, _uid(request), within_s))

    @route("DELETE", "/v1/allocations/{uid}", "allocations", query=("gpu",))
    @needs(Role.USER, Whose.OWN)
    async def free_allocation(self, request: HttpRequest) -> wire.FreedBody:
        """Free the cards of a request whose owner has stopped."""
        named = request.query_params.getlist("gpu") or None
        return body_of(wire.FreedBody, await durable(self._allocations.dealloc, _uid(request), named))

    @route(
        "POST",
        "/v1/allocations/{uid}/adjust",
        "allocations",
        body=wire.AdjustAllocation,
        others=((_REFUSED, wire.RefusalBody),),
    )
    @needs(Role.USER, Whose.OWN)
    async def adjust_allocation(self, request: HttpRequest) -> wire.AdjustmentBody:
        """Change the amounts of a request on its cards."""
        body = await bodies.read_body(request, wire.AdjustAllocation, BODY_LIMIT)
        change = AmountsChange(amounts_of("request", body.request), amounts_or_none("limit", body.limit))
        check_vram(change.request)
        outcome = await durable(self._allocations.adjust, _uid(request), change, body.dry_run)
        if isinstance(outcome, Refusal):
            raise Refused(outcome)
        return _adjustment(outcome, self.body(outcome.allocation))

    @route("POST", "/v1/plan", "allocations", body=wire.PlanRequest)
    @needs(Role.VIEWER)
    async def plan_allocation(self, request: HttpRequest) -> LongBody[wire.PlanBody]:
        """Return whether and where a request would be placed, with every step of the decision."""
        return await self._planned(request, await bodies.read_body(request, wire.PlanRequest, BODY_LIMIT))

    @route("GET", "/v1/plan", "allocations", query=("resreq", "priority", "preempt", "move"))
    @needs(Role.VIEWER)
    async def read_plan(self, request: HttpRequest) -> LongBody[wire.PlanBody]:
        """Return the plan of the request in the query, for pages that only read."""
        given = request.query_params
        if "resreq" not in given:
            raise invalid("resreq", "", "write what is asked for, such as gpu=1,vram=20g")
        body = wire.PlanRequest(
            resreq=given["resreq"],
            priority=count_of(request, "priority", 0) if "priority" in given else None,
            preempt=flag_of(request, "preempt"),
            move=flag_of(request, "move"),
        )
        return await self._planned(request, body)

    async def _planned(self, request: HttpRequest, body: wire.PlanRequest) -> LongBody[wire.PlanBody]:
        claim = claim_of(body)
        uid = body.uid if body.uid == wire.UNNAMED else check_name("uid", body.uid)
        resreq = bodies.requirement(body.resreq, self._service.numa)
        asked = self._service.quotas.admit(Request(uid, resreq, claim, body.strategy))
        decision = self._allocations.simulate(asked)
        plan, fleet = self._plan(asked, decision), self._fleet
        more: dict[str, Callable[[], Any]] = {}
        if body.preempt and isinstance(decision.outcome, Refusal):
            try:
                found = await self._would_evict(request, asked)
            except PlanChanged:
                return self._plan(asked, self._allocations.simulate(asked))
            more["preemption"] = lambda: preemption_body(fleet, found)
        if body.move and isinstance(decision.outcome, Refusal):
            planning = self._service.consolidations.planning
            moves = await self._searches.result_for(request, lambda: planning(asked, 1, None))
            more["room"] = lambda: room_plan(moves)
        return lambda: msgspec.structs.replace(plan(), **{name: write() for name, write in more.items()})

    async def _would_evict(self, request: HttpRequest, asked: Request) -> PreemptionAnswer:
        preemptions = self._service.preemptions
        found = await self._searches.result_for(request, lambda: preemptions.planning(asked))
        return preemptions.with_cards(asked, found)

    @route("GET", "/v1/nodes/{node}/capacity", "nodes")
    @needs(Role.VIEWER)
    async def get_capacity(self, request: HttpRequest) -> wire.CapacityBody:
        """Return the sums of the cards of a node."""
        return body_of(wire.CapacityBody, self._allocations.capacity(check_name("node", request.path_params["node"])))

    @route("GET", "/v1/unused-nodes", "nodes")
    @needs(Role.VIEWER)
    async def list_unused_nodes(self, _: HttpRequest) -> list[str]:
        """Return the nodes of which no card is held."""
        return list(self._allocations.unused_nodes())

    # --- conversion ---

    def request(self, request: HttpRequest, body: wire.CreateAllocation) -> Request:
        """Return the request in a body, of the caller or of whom an operator names."""
        now, owner = time.time(), self._authorizer.owner_for(request, body.owner)
        self._authorizer.check_queue(request, body.namespace)
        claim = replace(
            claim_of(body),
            workload=body.workload,
            pod=body.pod,
            pod_uid=body.pod_uid,
            created_at=now,
            protected_until=now + seconds_of("protected_s", body.protected_s) if body.protected_s else 0.0,
            labels=body.labels,
            owner=owner,
        )
        resreq = bodies.requirement(body.resreq, self._service.numa)
        return self._service.quotas.admit(Request(check_name("uid", body.uid), resreq, claim, body.strategy))

    def body(self, allocation: Allocation, warnings: Sequence[str] = ()) -> wire.AllocationBody:
        """Return the body of an allocation."""
        unconfirmed = self._service.observations.is_unconfirmed(allocation)
        found = _allocation(self._fleet, allocation, unconfirmed=unconfirmed)
        return msgspec.structs.replace(found, warnings=list(warnings)) if warnings else found

    def _plan(self, asked: Request, decision: Decision) -> LongBody[wire.PlanBody]:
        fleet, outcome, strategy = self._fleet, decision.outcome, self._service.state.allocator.rules.strategy_of(asked)
        workload = self._service.learning.workload if strategy.on(fleet) is not strategy else None
        never_fits = self._never_fits(asked) if isinstance(outcome, Refusal) else ()
        learned = None if workload is None else workload.tasks
        return lambda: plan_body(fleet, decision, strategy.name, learned_from=learned, warnings=never_fits)


def plan_body(
    fleet: Fleet, decision: Decision, strategy: str, *, learned_from: int | None = None, warnings: Iterable[str] = ()
) -> wire.PlanBody:
    """Return the body of a decision. `warnings` are about its refusal."""
    outcome = decision.outcome
    return wire.PlanBody(
        choice=_choice(fleet, outcome) if isinstance(outcome, Choice) else None,
        refusal=refusal_body(outcome, warnings) if isinstance(outcome, Refusal) else None,
        stages=[_stage(stage) for stage in decision.candidates.stages],
        node_scores=decision.scores.nodes,
        gpu_scores=decision.scores.cards,
        strategy=strategy,
        learned_from=learned_from,
        terms=dict(decision.terms),
        warnings=list(weaker_predictions(fleet, [outcome.node])) if isinstance(outcome, Choice) else [],
    )


def _choice(fleet: Fleet, choice: Choice) -> wire.ChoiceBody:
    gpus = _gpus(fleet, choice.gpus, choice.charges)
    placement = placement_body(choice.placement)
    return wire.ChoiceBody(node=choice.node, gpus=gpus, score=choice.score, placement=placement)


def _allocation(fleet: Fleet, allocation: Allocation, *, unconfirmed: bool) -> wire.AllocationBody:
    """Return the body of an allocation. This reads only the inventory of the books, which is immutable."""
    claim = allocation.claim
    assert claim is not None
    return body_of(
        wire.AllocationBody,
        allocation,
        claim,
        uid=allocation.id,
        gpus=_gpus(fleet, allocation.gpus, allocation.charges),
        resreq=str(allocation.requirement),
        limit=None if claim.limit is None else part_map(claim.limit),
        placement=placement_body(allocation.placement),
        unconfirmed=unconfirmed,
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


def _stage(stage: Stage) -> wire.StageBody:
    return body_of(wire.StageBody, stage, name=stage.filter, removed=list(map(rejection_body, stage.removed)))


def _gpus(fleet: Fleet, uuids: Sequence[str], charges: Sequence[Charge]) -> list[wire.AllocatedGpu]:
    return [_gpu(fleet, uuid, charges[position] if charges else None) for position, uuid in enumerate(uuids)]


def _gpu(fleet: Fleet, uuid: str, charge: Charge | None) -> wire.AllocatedGpu:
    card = fleet.card_of.get(uuid)
    if card is None:
        known = (None, None) if charge is None else (charge.compute, charge.vram)
        return wire.AllocatedGpu(uuid=uuid, compute_gflops=known[0], vram_bytes=known[1], isolation="shared")
    grant, slot = Grant.of(fleet.cards[card], charge), charge.slot if charge else None
    return body_of(
        wire.AllocatedGpu,
        grant,
        uuid=uuid,
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
        percent=format_percent(amounts.compute_ppm) if amounts.compute_ppm else None,
        vram=amounts.vram_bytes or None,
    )


def _owner(allocation: Allocation) -> str:
    return "" if allocation.claim is None else allocation.claim.owner


def claim_of(body: wire.CreateAllocation | wire.PlanRequest | ClusterPlan) -> Claim:
    """Return the claim of a request by its namespace, limit, quality of service and priority."""
    namespace, limit = check_name("namespace", body.namespace), amounts_or_none("limit", body.limit)
    qos = parse_choice(Qos, body.qos, "qos")
    return Claim(namespace, limit=limit, qos=qos, priority=PRIORITIES[qos] if body.priority is None else body.priority)


def seconds_of(field: str, value: float) -> float:
    """Return a duration of a body, in seconds."""
    if not 0 <= value <= MAX_SECONDS:
        raise invalid(field, value, f"0 to {MAX_SECONDS} seconds are needed")
    return value


def amounts_of(field: str, part: wire.PartMap) -> Part:
    """Return the amounts of each card in a body; `field` names it in errors."""
    tflops, percent, vram = part.tflops, part.percent, part.vram
    if tflops and percent:
        raise invalid(f"{field}.percent", percent, "tflops are given too; leave one of the two out")
    return Part(
        0 if tflops is None else parse_tflops(str(tflops), f"{field}.tflops"),
        0 if vram is None else parse_bytes(str(vram), f"{field}.vram"),
        0 if percent is None else parse_percent(str(percent), f"{field}.percent"),
    )


def amounts_or_none(field: str, part: wire.PartMap | None) -> Part | None:
    """Return `amounts_of` the part; None for None."""
    return None if part is None else amounts_of(field, part)


def _uid(request: HttpRequest) -> str:
    return check_name("uid", request.path_params["uid"])
