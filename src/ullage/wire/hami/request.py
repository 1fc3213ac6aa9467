"""The request of a pod in HAMi's resources and annotations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ullage.model.alignment import Alignment, AlignmentStage, ContainerNeeds
from ullage.model.error import InvalidRequest, invalid, invalid_annotation
from ullage.model.part import MAX_NAMES, WHOLE_CARD, CardSelector, Isolation, Part
from ullage.model.quantity import PPM
from ullage.model.request import MAX_CARDS, ResourceRequirement
from ullage.model.resources import MILLI
from ullage.model.topology import CARD, ZonePolicy
from ullage.wire.document import Document, mappings, section
from ullage.wire.hami.policies import Policies, policies_of
from ullage.wire.hami.sharing import as_one_container, most_cards, shared_cards, slice_counts
from ullage.wire.pod.affinity import node_affinity
from ullage.wire.pod.alignment import alignment_of, policy_key
from ullage.wire.pod.cards import CardRequest
from ullage.wire.pod.containers import pod_amount
from ullage.wire.pod.keys import DOMAIN, Keys, comma_list
from ullage.wire.pod.owner import claim_of
from ullage.wire.pod.request import PLAIN_DEFAULTS, Dialect, PodDefaults, PodRequest
from ullage.wire.shared import shared_requirement
from ullage.wire.vendors.container_request import ContainerRequest, FamilyRequest
from ullage.wire.vendors.containers import container_requests
from ullage.wire.vendors.family import Family
from ullage.wire.vendors.profiles import SliceProfile
from ullage.wire.vendors.shipped import NVIDIA

_NATIVE = "nvidia.com/gpu"
"""A resource that alignment reads as cards, for any vendor."""


def read_hami(
    pod: Document,
    family: Family = NVIDIA,
    domain: str = DOMAIN,
    *,
    profiles: Sequence[SliceProfile] = (),
    defaults: PodDefaults = PLAIN_DEFAULTS,
    replicas: int | None = None,
    now: float = 0.0,
) -> PodRequest | None:
    """Return the request of a pod; None if no container requests a card.

    Annotations that are not about cards are read under `domain`. All cards of a request have the same amounts: where
    containers differ, each card has the largest of them. `profiles` are the slices of the nodes in question, for a
    family whose slices depend on the node.
    """
    requests = container_requests(pod, family, profiles)
    with_cards = [request for request in requests if request.count]
    if not with_cards:
        return None
    count = most_cards(requests)
    if count > MAX_CARDS:
        raise invalid(family.resources.count, count, f"at most {MAX_CARDS} cards can be requested")
    policies = policies_of(pod, family)
    _check_class(pod, family)
    part, whole = _part(with_cards, family)
    isolation = _isolation(pod, family, defaults, alone=whole or policies.alone or family.parts == "none")
    keys = Keys(pod, domain)
    cards = replace(_named(pod, family), pool=keys.text("gpupool") or defaults.pool, isolation=isolation)
    spec = section(pod, "spec")
    asked = CardRequest(count, part, cards, None, guaranteed=True)
    claim, warnings = claim_of(keys, spec, asked, defaults, replicas=replicas, now=now)
    if isolation is Isolation.SHARED and part != WHOLE_CARD:  # all cores or a policy: the cards are taken whole
        claim = replace(claim, limit=part, counts_as_written=True)
    cpu_milli = pod_amount(spec, "cpu", MILLI)
    requirement = shared_requirement(
        ResourceRequirement(
            cpu_milli=cpu_milli,
            memory_bytes=pod_amount(spec, "memory", 1),
            gpu_count=count,
            part=None if isolation is Isolation.SHARED and part == WHOLE_CARD else part,
            cards=cards,
            nodes=node_affinity(spec),
            alignment=_alignment(pod, keys, _Cards(requests, family, count, cpu_milli, policies=policies)),
        )
    )
    return PodRequest(
        uid=claim.pod_uid,
        requirement=requirement,
        together=_together(requests, requirement),
        claim=claim,
        domain=domain,
        container_gpu_counts=_split(requests, count),
        warnings=(*_differing_amounts(with_cards), *policies.warnings, *warnings),
        strategy=policies.strategy,
        idle_only=policies.alone,
        dialect=Dialect.HAMI,
        devices=FamilyRequest(family, requests),
    )


def _check_class(pod: Document, family: Family) -> None:
    """Refuse a class that the family does not have."""
    rule = family.classes
    written = None if rule is None else _annotation(pod, rule.annotation)
    if rule is not None and written not in (None, *rule.values):
        raise invalid_annotation(rule.annotation, written, f"choose one of {', '.join(rule.values)}")


def _named(pod: Document, family: Family) -> CardSelector:
    """Return the cards of a family that the annotations name, by uuid or by words of their model.

    Of several lists of uuids all count.
    """
    own = family.annotations
    allowed = [found for key in own.use_uuid if (found := _listed(pod, key))]
    uuids = tuple(uuid for uuid in allowed[0] if all(uuid in each for each in allowed)) if allowed else ()
    if allowed and not uuids:
        keys = ", ".join(own.use_uuid)
        raise invalid_annotation(keys, [list(each) for each in allowed], "no card is in each list; keep one of them")
    return CardSelector(
        vendors=(family.name,),
        uuids=uuids,
        not_uuids=tuple(dict.fromkeys(uuid for key in own.nouse_uuid for uuid in _listed(pod, key))),
        model_words=_listed(pod, own.use_type),
        not_model_words=_listed(pod, own.nouse_type),
    )


def _part(with_cards: Sequence[ContainerRequest], family: Family) -> tuple[Part, bool]:
    """Return the largest request of a container per card, and whether one of them requests all cores."""
    vram = max(request.vram_bytes for request in with_cards)
    ppm = max(request.vram_ppm for request in with_cards)
    if vram and ppm == PPM:
        vram = 0
    elif vram and ppm:
        both = f"{family.resources.memory}, {family.resources.percent}"
        raise invalid("spec.containers", both, "containers of one pod request memory in one unit; keep one of the two")
    cores = max(request.cores_ppm for request in with_cards)
    return Part(compute_ppm=cores, vram_bytes=vram, vram_ppm=ppm), cores == PPM


def _together(requests: Sequence[ContainerRequest], apart: ResourceRequirement) -> tuple[ResourceRequirement, ...]:
    """Return the requests for containers that share cards, most cards first; none where cards are held whole.

    Slices are never shared: a card has as many of them as its containers need.
    """
    if apart.cards.isolation is Isolation.PARTITIONED:
        return tuple(
            replace(
                apart,
                gpu_count=count,
                cards=replace(apart.cards, slices=slices),
                alignment=as_one_container(apart.alignment, count),
            )
            for count, slices in slice_counts(requests).items()
        )
    if apart.part is None or apart.cards.isolation not in (Isolation.SOFT, Isolation.HARD):
        return ()
    return tuple(
        replace(apart, gpu_count=count, part=part, alignment=as_one_container(apart.alignment, count))
        for count, part in shared_cards(requests).items()
    )


def _isolation(pod: Document, family: Family, defaults: PodDefaults, *, alone: bool) -> Isolation:
    """Return the isolation mode of the cards.

    All cores, and cards without other users, hold a card whole; a hardware slice is exclusive anyway.
    """
    key = family.annotations.mode
    named = _annotation(pod, key) or ""
    if named and named not in family.modes:
        raise invalid_annotation(key, named, f"choose one of {', '.join(family.modes)}")
    mode = family.modes.get(named)
    if mode is Isolation.PARTITIONED:
        return mode
    if alone:
        return Isolation.SHARED
    return mode or (defaults.isolation if family.parts == "soft" else Isolation(family.parts))


def _differing_amounts(with_cards: Sequence[ContainerRequest]) -> tuple[str, ...]:
    if len({(request.vram_bytes, request.vram_ppm, request.cores_ppm) for request in with_cards}) == 1:
        return ()
    meaning = "the largest is requested of every card, and each card then holds what its container requests"
    return (f"containers request different parts of cards: {meaning}",)


def _annotation(pod: Document, key: str) -> str | None:
    """Return the value of an annotation by its full key; None if there is none, or no key."""
    domain, _, name = key.partition("/")
    return Keys(pod, domain).text(name) if key else None


def _listed(pod: Document, key: str) -> tuple[str, ...]:
    """Return the entries of a comma list, without blanks around them; none for an empty list."""
    written = _annotation(pod, key) or ""
    try:
        return CardSelector(uuids=comma_list(written)).uuids
    except InvalidRequest:
        fix = f"write at most {MAX_NAMES} names with commas between them, without bars and ="
        raise invalid_annotation(key, written, fix) from None


def _split(requests: Sequence[ContainerRequest], count: int) -> dict[str, int]:
    """Return the cards per app container and sidecar, if these have all cards and more than one of them has some."""
    staying = {
        request.name: request.count
        for request in requests
        if request.count and request.stage is not AlignmentStage.INIT
    }
    return staying if len(staying) > 1 and sum(staying.values()) == count else {}


# --- zones ---


@dataclass(frozen=True, slots=True)
class _Cards:
    requests: tuple[ContainerRequest, ...]
    family: Family
    count: int
    cpu_milli: int
    policies: Policies


def _alignment(pod: Document, keys: Keys, cards: _Cards) -> Alignment:
    """Return the alignment of the pod.

    `numa-bind` requires the cards of a container to be in one zone, and `numa` prefers it.
    """
    key = cards.family.annotations.numa_bind
    bind = (_annotation(pod, key) or "false").casefold()
    if bind not in ("true", "false"):
        raise invalid_annotation(key, bind, "write true or false")
    plain = _as_plain(pod, cards)
    found = alignment_of(keys, plain, cpu_milli=cards.cpu_milli, cards=cards.count, split={})
    if found.policy is not None and bind == "true":
        fix = f"{policy_key(keys, pod)} is {found.policy.value!r}; keep one of the two"
        raise invalid_annotation(key, bind, fix)
    found = replace(found, links=found.links or cards.policies.links)
    if found.policy is not None or not (bind == "true" or cards.policies.near):
        return found
    policy = ZonePolicy.SINGLE_ZONE if bind == "true" else ZonePolicy.BEST_EFFORT
    needs = (
        ContainerNeeds(request.name, request.stage, devices=((CARD, request.count),))
        for request in cards.requests
        if request.count
    )
    return Alignment(policy, tuple(needs), links=found.links)


def _as_plain(pod: Document, cards: _Cards) -> Document:
    """Return the pod with whole cards of a device plugin in place of HAMi's resources."""
    spec, left = dict(section(pod, "spec")), iter(cards.requests)
    hidden = {cards.family.resources.count, *cards.family.amounts}
    for kind in ("initContainers", "containers"):
        if spec.get(kind) is not None:
            there = mappings(spec[kind], f"spec.{kind}")
            spec[kind] = [_with_cards(container, next(left), hidden) for _, container in there]
    return {**pod, "spec": spec}


def _with_cards(container: Document, request: ContainerRequest, hidden: set[str]) -> dict[str, Any]:
    resources = dict(container.get("resources") or {})
    for kind in ("limits", "requests"):
        amounts = resources.get(kind) or {}
        resources[kind] = {name: value for name, value in amounts.items() if name not in hidden}
    if request.count:
        resources["limits"][_NATIVE] = request.count
    return {**container, "resources": resources}
