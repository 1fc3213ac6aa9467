"""The request of a pod that asks in HAMi's words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from ullage.model.alignment import Alignment, ContainerNeeds, Stage
from ullage.model.error import InvalidRequest, invalid
from ullage.model.part import MAX_NAMES, WHOLE_CARD, CardSelector, Isolation, Part
from ullage.model.quantity import PPM
from ullage.model.request import MAX_CARDS, ResourceRequirement
from ullage.model.resources import MILLI
from ullage.model.topology import CARD, ZonePolicy
from ullage.wire.document import Document, mapping, mappings
from ullage.wire.hami.ask import WHOLE, ContainerAsk, DeviceAsk
from ullage.wire.hami.containers import container_asks
from ullage.wire.hami.policies import Policies, policies_of
from ullage.wire.hami.sharing import as_one_container, most_cards, shared_cards
from ullage.wire.hami.words import NVIDIA, Words
from ullage.wire.pod.affinity import node_affinity
from ullage.wire.pod.alignment import alignment_of
from ullage.wire.pod.cards import Asked
from ullage.wire.pod.containers import pod_amount
from ullage.wire.pod.keys import DOMAIN, Keys, listed
from ullage.wire.pod.owner import claim_of
from ullage.wire.pod.request import PLAIN_DEFAULTS, Dialect, PodDefaults, PodRequest

_NATIVE = "nvidia.com/gpu"
"""A resource that alignment knows as cards, whatever their vendor."""


class Mode(StrEnum):
    """How parts of a card are kept apart: by a library in the container, or cut by hardware."""

    SOFT = "hami-core"
    PARTITIONED = "mig"


def read_hami(
    pod: Document,
    words: Words = NVIDIA,
    domain: str = DOMAIN,
    *,
    defaults: PodDefaults = PLAIN_DEFAULTS,
    replicas: int | None = None,
    now: float = 0.0,
) -> PodRequest | None:
    """The request of a pod; None if no container asks for a card. What is not about cards is read under `domain`.

    All cards of a request are asked alike: where containers differ, each card is asked for the most of them.

    Raises:
        InvalidAnnotation: an annotation is wrong, or two contradict each other.
        InvalidRequest: an amount or another field of the pod is wrong.

    """
    asks = container_asks(pod, words)
    asking = [ask for ask in asks if ask.count]
    if not asking:
        return None
    count = most_cards(asks)
    if count > MAX_CARDS:
        raise invalid(words.count, count, f"at most {MAX_CARDS} cards can be asked")
    policies, own = policies_of(pod, words), Keys(pod, words.domain)
    mode = own.choice("vgpu-mode", Mode)
    part, whole = _part(asking, words)
    isolation = _isolation(mode, defaults, alone=whole or policies.alone)
    keys = Keys(pod, domain)
    cards = CardSelector(
        vendors=(words.vendor,),
        pool=keys.text("gpupool") or defaults.pool,
        isolation=isolation,
        uuids=_listed(own, "use-gpuuuid"),
        not_uuids=_listed(own, "nouse-gpuuuid"),
        model_words=_listed(own, "use-gputype"),
        not_model_words=_listed(own, "nouse-gputype"),
    )
    spec = mapping(pod.get("spec"), "spec")
    asked = Asked(count, part, cards, None, guaranteed=True)
    claim, warnings = claim_of(keys, spec, asked, defaults, replicas, now)
    if isolation is Isolation.SHARED and part != WHOLE_CARD:  # cores, or a policy, take the rest of its cards
        claim = replace(claim, limit=part, counts_as_written=True)
    cpu_milli = pod_amount(spec, "cpu", MILLI)
    requirement = ResourceRequirement(
        cpu_milli=cpu_milli,
        memory_bytes=pod_amount(spec, "memory", 1),
        gpu_count=count,
        part=None if isolation is Isolation.SHARED and part == WHOLE_CARD else part,
        cards=cards,
        nodes=node_affinity(spec),
        alignment=_alignment(pod, keys, own, _Cards(asks, words, count, cpu_milli, policies)),
    )
    return PodRequest(
        uid=claim.pod_uid,
        requirement=requirement,
        together=_together(asks, requirement),
        claim=claim,
        domain=domain,
        container_gpu_counts=_split(asks, count),
        warnings=(*_told_apart(asking), *policies.warnings, *warnings),
        strategy=policies.strategy,
        idle_only=policies.alone,
        dialect=Dialect.HAMI,
        devices=DeviceAsk(words, asks),
    )


def _part(asking: Sequence[ContainerAsk], words: Words) -> tuple[Part, bool]:
    """The most that a container asks of each card, and whether one of them asks for all cores."""
    vram = max(ask.vram_bytes for ask in asking)
    ppm = max(ask.vram_ppm for ask in asking)
    if vram and ppm == PPM:
        vram = 0
    elif vram and ppm:
        both = f"{words.memory}, {words.memory_percentage}"
        raise invalid("spec.containers", both, "containers of one pod say memory in one unit; keep one of the two")
    cores = max(ask.cores for ask in asking)
    return Part(compute_ppm=cores * PPM // WHOLE, vram_bytes=vram, vram_ppm=ppm), cores == WHOLE


def _together(asks: Sequence[ContainerAsk], apart: ResourceRequirement) -> tuple[ResourceRequirement, ...]:
    """What is asked where containers share cards, most cards first; nothing where cards are held whole."""
    if apart.part is None or apart.cards.isolation not in (Isolation.SOFT, Isolation.HARD):
        return ()
    return tuple(
        replace(apart, gpu_count=count, part=part, alignment=as_one_container(apart.alignment, count))
        for count, part in shared_cards(asks).items()
    )


def _isolation(mode: Mode | None, defaults: PodDefaults, *, alone: bool) -> Isolation:
    """All cores, and cards that nobody else has, hold a card whole; a slice of hardware is nobody else's anyway."""
    if mode is Mode.PARTITIONED:
        return Isolation.PARTITIONED
    if alone:
        return Isolation.SHARED
    return Isolation.SOFT if mode is Mode.SOFT else defaults.isolation


def _told_apart(asking: Sequence[ContainerAsk]) -> tuple[str, ...]:
    if len({(ask.vram_bytes, ask.vram_ppm, ask.cores) for ask in asking}) == 1:
        return ()
    told = "a place is looked for with the most of them on every card, and each card then holds what its container asks"
    return (f"containers ask for different parts of cards: {told}",)


def _listed(keys: Keys, name: str) -> tuple[str, ...]:
    """Entries of a comma list, without blanks around them; none for a list that has none."""
    found = listed(keys.text(name) or "")
    try:
        return CardSelector(uuids=found).uuids
    except InvalidRequest:
        fix = f"write at most {MAX_NAMES} names with commas between them, without bars and ="
        raise keys.wrong(name, fix) from None


def _split(asks: Sequence[ContainerAsk], count: int) -> dict[str, int]:
    """Cards of the containers that stay, if they are all of them and more than one container has some."""
    staying = {ask.name: ask.count for ask in asks if ask.count and ask.stage is not Stage.INIT}
    return staying if len(staying) > 1 and sum(staying.values()) == count else {}


# --- zones ---


@dataclass(frozen=True, slots=True)
class _Cards:
    asks: tuple[ContainerAsk, ...]
    words: Words
    count: int
    cpu_milli: int
    policies: Policies


def _alignment(pod: Document, keys: Keys, own: Keys, cards: _Cards) -> Alignment:
    """As the pod says of zones; `numa-bind` has the cards of each container in one zone, and `numa` tries to."""
    bind = (own.text("numa-bind") or "false").casefold()
    if bind not in ("true", "false"):
        raise own.wrong("numa-bind", "write true or false")
    plain = _as_plain(pod, cards)
    found = alignment_of(keys, plain, cpu_milli=cards.cpu_milli, cards=cards.count, split={})
    if found.policy is not None and bind == "true":
        raise own.wrong("numa-bind", f"{keys.key('numa-policy')} is {found.policy.value!r}; keep one of the two")
    if found.policy is not None or not (bind == "true" or cards.policies.near):
        return found
    policy = ZonePolicy.SINGLE_ZONE if bind == "true" else ZonePolicy.BEST_EFFORT
    needs = (ContainerNeeds(ask.name, ask.stage, devices=((CARD, ask.count),)) for ask in cards.asks if ask.count)
    return Alignment(policy, tuple(needs))


def _as_plain(pod: Document, cards: _Cards) -> Document:
    """The pod with nothing but cards, as a device plugin offers them, where HAMi's words were."""
    spec, left = dict(mapping(pod.get("spec"), "spec")), iter(cards.asks)
    hidden = {cards.words.count, *cards.words.amounts}
    for kind in ("initContainers", "containers"):
        if spec.get(kind) is not None:
            there = mappings(spec[kind], f"spec.{kind}")
            spec[kind] = [_with_cards(container, next(left), hidden) for _, container in there]
    return {**pod, "spec": spec}


def _with_cards(container: Document, ask: ContainerAsk, hidden: set[str]) -> dict[str, Any]:
    resources = dict(container.get("resources") or {})
    for kind in ("limits", "requests"):
        amounts = resources.get(kind) or {}
        resources[kind] = {name: value for name, value in amounts.items() if name not in hidden}
    if ask.count:
        resources["limits"][_NATIVE] = ask.count
    return {**container, "resources": resources}
