"""Plans: where a request or a pod would be placed now, by the functions that answer kube-scheduler. Nothing changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import msgspec

from ullage.core.placing.decision import Candidates, Choice, Decision, Refusal, Scores
from ullage.kube.extender.card_offers import FamilyOffers
from ullage.kube.extender.explained import why_nowhere
from ullage.kube.extender.filtering import Examined
from ullage.kube.front import Front
from ullage.model.allocation import Charge
from ullage.model.claim import Request
from ullage.model.error import InvalidRequest, Unavailable, invalid
from ullage.model.part import Isolation
from ullage.server.allocations import claim_of, plan_body
from ullage.server.bodies import requirement
from ullage.service.pages import written
from ullage.wire.allocation import UNNAMED, PlanBody
from ullage.wire.cluster_view import ClusterPlan
from ullage.wire.decoding import decode_body
from ullage.wire.document import Document
from ullage.wire.unread_words import check_misspelt, unread_words

_MOST_SCORES = 100
"""Nodes of a plan for a pod, the best first."""


async def write_plan(front: Front, body: bytes) -> bytes:
    """Return the plan for the body of a `ClusterPlan` as JSON.

    Raises:
        InvalidRequest: the body, the request or the pod is malformed.
        NotFound: the pool is not known. Unavailable: this process does not decide now.

    """
    asked = decode_body(body, ClusterPlan)
    if (asked.pod is None) is (asked.resreq is None):
        raise InvalidRequest("body: give one of resreq and pod", field="body")
    if front.extender.unready:
        raise Unavailable(front.extender.unready, code="not-ready")
    front.mirror.settle()
    plan = _of_request(front, asked) if asked.pod is None else _of_pod(front, asked.pod, asked.namespace)
    return await written(lambda: msgspec.json.encode(plan))


def _of_request(front: Front, asked: ClusterPlan) -> PlanBody:
    assert asked.resreq is not None
    books = front.cluster.allocator
    request = Request(UNNAMED, requirement(asked.resreq, None), claim_of(asked), asked.strategy)
    return plan_body(books.fleet, books.simulate(request), books.rules.strategy_of(request).name)


def _of_pod(front: Front, pod: Document, namespace: str) -> PlanBody:
    """Return the plan of a pod as the extender would place it; other filters of kube-scheduler are not applied."""
    metadata = pod.get("metadata")
    if not isinstance(metadata, dict):
        raise invalid("pod.metadata", metadata, "give a whole pod")
    pod = {**pod, "metadata": {"namespace": namespace, **metadata, "uid": UNNAMED}}
    check_misspelt(pod, front.context.pod_settings)
    asked = front.context.read_pod(pod)
    if asked is None:
        raise invalid("pod", metadata.get("name"), "it asks for no card, so Ullage leaves it to kube-scheduler")
    books = front.cluster.allocator
    found = front.extender.examine(pod, asked, list(books.fleet.row_of))
    outcome = _outcome(front, found)
    best = dict(islice(sorted(found.scores.items(), key=_highest_first), _MOST_SCORES))
    decision = Decision(Candidates({}, ()), Scores(best, {}), outcome)
    plan = plan_body(books.fleet, decision, books.rules.strategy_of(asked.request).name)
    if plan.refusal is not None:
        sentence = why_nowhere(front.cluster, found.by_family)
        plan = msgspec.structs.replace(plan, refusal=msgspec.structs.replace(plan.refusal, message=sentence))
    unread = unread_words(pod, asked, front.context.pod_settings)
    return msgspec.structs.replace(plan, warnings=[*plan.warnings, *unread, *asked.warnings])


def _outcome(front: Front, found: Examined) -> Choice | Refusal:
    """Return the cards on the best node, or the refusal of the nodes; those where freed capacity helps come first."""
    if found.scores:
        best = max(sorted(found.scores), key=lambda node: found.scores[node])
        chosen = [_choice(front, each, best) for each in found.by_family]
        if places := [each for each in chosen if each is not None]:
            return _of_all(front, places, found.scores[best])
    refused = [refusal for each in found.by_family for refusal, _ in each.offers.refused]
    refused.sort(key=lambda refusal: not refusal.helps)
    return Refusal(
        tuple(rejection for refusal in refused for rejection in refusal.rejections[:1]),
        helps=any(refusal.helps for refusal in refused),
    )


def _choice(front: Front, found: FamilyOffers, node: str) -> Choice | None:
    """Return the cards of one family that a pod would get on a node."""
    asked, admitted, _ = found
    there = [each for each, nodes in admitted.asked if node in nodes]
    for each in [*there, *(() if admitted.places else asked.shared)]:
        choice = front.cluster.allocator.choose_on(each.request, node)
        if isinstance(choice, Choice):
            return choice
    return None


def _of_all(front: Front, places: Sequence[Choice], score: float) -> Choice:
    """Return the cards of all families of a pod on one node."""
    first, *further = places
    if not further:
        return replace(first, score=score)
    charges = [charge for each in places for charge in each.charges or _whole(front, each)]
    return replace(first, gpus=tuple(gpu for each in places for gpu in each.gpus), charges=tuple(charges), score=score)


def _whole(front: Front, choice: Choice) -> list[Charge]:
    cards = front.cluster.allocator.fleet.gpus(choice.gpus)
    return [Charge(card.compute, card.vram, Isolation.SHARED) for card in cards]


def _highest_first(scored: tuple[str, float]) -> tuple[float, str]:
    node, score = scored
    return -score, node
