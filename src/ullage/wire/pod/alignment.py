"""The alignment that a pod requests: its policy, and what each of its containers is aligned by.

The rules are the kubelet's: devices are aligned in pods of every class, by the limits; CPUs for containers of
Guaranteed pods that request a whole number; memory and huge pages in Guaranteed pods. Everything else comes from the
shared pool of the node, and is not aligned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ullage.model.alignment import (
    MAX_PAIRS,
    SEPARATOR,
    Alignment,
    AlignmentStage,
    ContainerNeeds,
    LinkDemand,
    Pair,
    read_pair,
)
from ullage.model.error import InvalidRequest, invalid, invalid_annotation
from ullage.model.resources import MILLI
from ullage.model.topology import CARD, HUGEPAGES, ZonePolicy
from ullage.wire.document import Document, section, text
from ullage.wire.kubernetes_quantity import parse_quantity
from ullage.wire.pod.card_topology import Tier, demanded_links, demanded_tier
from ullage.wire.pod.containers import container_amount, containers_of, has_own_cpus, limited_resources
from ullage.wire.pod.keys import Keys
from ullage.wire.vendors.shipped import as_resource

VOLCANO = "volcano.sh"
"""The domain of Volcano's annotations, which are on the pods of its jobs."""

VOLCANO_POLICY = "numa-topology-policy"
"""Volcano's annotation of the policy."""


def alignment_of(keys: Keys, pod: Document, *, cpu_milli: int, cards: int, split: Mapping[str, int]) -> Alignment:
    """Return the alignment of a pod with these amounts; `split` has the cards of each container, if stated.

    Pods with the same alignment get equal values. A single container has no name. It is left out if it is aligned by
    exactly the cards and CPUs of the pod, as any request of these amounts is.
    """
    containers = tuple(_with_cards(keys, list(needs_of(pod)), cards, split))
    containers = tuple(needs for needs in containers if needs != ContainerNeeds(needs.name, needs.stage))
    if len(containers) == 1:
        containers = (replace(containers[0], name=""),)
    whole = cpu_milli // MILLI if cpu_milli % MILLI == 0 else 0
    if containers == (ContainerNeeds(cpus=whole, devices=((CARD, cards),)),):
        containers = ()
    policy, pairs = _policy(keys, pod), keys.parse("numa-pairs", _pairs) or ()
    if pairs and policy is ZonePolicy.NONE:
        raise keys.invalid("numa-pairs", f"{policy_key(keys, pod)} is 'none'; leave it out, or request best-effort")
    tier = demanded_tier(keys) if cards else None
    links = demanded_links(keys, tier) if cards else None
    together = (ContainerNeeds(devices=((CARD, cards),)),)
    if tier is None:
        several = sum(CARD in dict(needs.devices) for needs in containers) > 1
        one_island = links is LinkDemand.ISLAND and policy is None and several
        return Alignment(policy, together if one_island else containers, pairs, links)
    if policy is not None:
        fix = f"{keys.key('require-gpu-topology')} says how near all cards are to each other; keep one of the two"
        raise invalid_annotation(policy_key(keys, pod), policy.value, fix)
    return Alignment(None if tier is Tier.LINKED else ZonePolicy.SINGLE_ZONE, together, pairs, links)


def _policy(keys: Keys, pod: Document) -> ZonePolicy | None:
    others = Keys(pod, VOLCANO)
    ours = keys.choice("numa-policy", ZonePolicy)
    theirs = others.choice(VOLCANO_POLICY, ZonePolicy)
    if ours is not None and theirs is not None and ours is not theirs:
        other = others.key(VOLCANO_POLICY)
        raise keys.invalid("numa-policy", f"{other} is {theirs.value!r}; keep one of the two")
    return ours or theirs


def policy_key(keys: Keys, pod: Document) -> str:
    """Return the key of the annotation that states the policy of a pod."""
    ours = keys.text("numa-policy") is not None
    return keys.key("numa-policy") if ours else Keys(pod, VOLCANO).key(VOLCANO_POLICY)


def zone_annotations(pod: Document, domain: str) -> tuple[str, ...]:
    """Return the keys of the annotations with which a pod requests zones."""
    known = (
        (Keys(pod, domain), "numa-policy"),
        (Keys(pod, domain), "numa-pairs"),
        (Keys(pod, VOLCANO), VOLCANO_POLICY),
    )
    return tuple(keys.key(name) for keys, name in known if keys.text(name) not in (None, ZonePolicy.NONE))


def _pairs(value: str, key: str) -> tuple[Pair, ...]:
    """Return what cards are kept near, from pod resource names such as `gpu~intel.com/sriov=required`, by commas."""
    pairs: dict[str, Pair] = {}
    entries = value.split(",")
    if len(entries) > MAX_PAIRS:
        raise invalid(key, value, f"{len(entries)} pairs; at most {MAX_PAIRS} can be requested")
    for entry in entries:
        sides, _, level = entry.partition("=")
        try:
            pair = read_pair(
                SEPARATOR.join(as_resource(side.strip()) for side in sides.split(SEPARATOR)), level.strip()
            )
        except InvalidRequest as error:
            raise InvalidRequest(f"{key}: {error.message}", field=key) from None
        if pair.resource in pairs:
            raise invalid(key, value, f"{pair.resource} is in two pairs; keep one")
        pairs[pair.resource] = pair
    return tuple(pairs[name] for name in sorted(pairs))


def needs_of(pod: Document) -> Iterator[ContainerNeeds]:
    """Yield what each container of a pod is aligned by, in the order of their start."""
    alone = has_own_cpus(pod)
    for stage, path, container in containers_of(section(pod, "spec")):
        cpu_milli = container_amount(container, path, "cpu", MILLI, kinds=("requests", "limits")) if alone else 0
        yield ContainerNeeds(
            name=text(container.get("name")),
            stage=stage,
            cpus=cpu_milli // MILLI if cpu_milli % MILLI == 0 else 0,
            memory_bytes=container_amount(container, path, "memory", 1, kinds=("requests", "limits")) if alone else 0,
            devices=tuple(sorted(_devices(container, path).items())),
            hugepages=tuple(sorted(_hugepages(container, path).items())) if alone else (),
        )


def _devices(container: Document, path: str) -> dict[str, int]:
    """Return how many devices of each resource are in the limits; cards of all vendors count as one resource."""
    found: dict[str, int] = {}
    for name in limited_resources(container, path):
        if "/" in name and "kubernetes.io/" not in name:
            resource = as_resource(name)
            found[resource] = found.get(resource, 0) + container_amount(container, path, name, 1, kinds=("limits",))
    return {resource: count for resource, count in found.items() if count}


def _hugepages(container: Document, path: str) -> dict[int, int]:
    """Return bytes of huge pages by page size in bytes."""
    found: dict[int, int] = {}
    for name in limited_resources(container, path):
        if name.startswith(HUGEPAGES):
            size = parse_quantity(name.removeprefix(HUGEPAGES), f"{path}.resources.limits.{name}")
            found[size] = found.get(size, 0) + container_amount(container, path, name, 1, kinds=("limits",))
    return {size: amount for size, amount in found.items() if amount}


def _with_cards(
    keys: Keys, containers: list[ContainerNeeds], cards: int, split: Mapping[str, int]
) -> Iterator[ContainerNeeds]:
    """Yield the containers with the cards of the pod.

    Cards that annotations request, and no container, are split as the pod states. All containers see cards that are
    not split; here they are given to the first app container.
    """
    if keys.text("gpu-count") is None and any(CARD in dict(needs.devices) for needs in containers):
        yield from containers
        return
    rest = cards - sum(split.get(needs.name, 0) for needs in containers)
    for needs in containers:
        count = split.get(needs.name, 0)
        if needs.stage is AlignmentStage.APP:
            count, rest = count + max(rest, 0), 0
        others = tuple(entry for entry in needs.devices if entry[0] != CARD)
        yield replace(needs, devices=tuple(sorted((*others, (CARD, count)))) if count else others)
