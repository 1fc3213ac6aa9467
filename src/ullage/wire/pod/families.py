"""The requests of a pod with cards of several families: one for each family, as if the pod had no others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ullage.model.alignment import Alignment
from ullage.model.error import invalid
from ullage.model.family_ids import family_id
from ullage.model.request import ResourceRequirement
from ullage.model.topology import ZonePolicy
from ullage.wire.document import Document, mapping, mappings, section
from ullage.wire.pod.request import PodRequest


def without_resources(pod: Document, hidden: Collection[str]) -> Document:
    """Return the pod with containers that do not request these resources."""
    spec = dict(section(pod, "spec"))
    for kind in ("initContainers", "containers"):
        if spec.get(kind) is not None:
            spec[kind] = [_without(each, path, hidden) for path, each in mappings(spec[kind], f"spec.{kind}")]
    return {**pod, "spec": spec}


def _without(container: Document, path: str, hidden: Collection[str]) -> dict[str, Any]:
    resources = dict(mapping(container.get("resources"), f"{path}.resources"))
    for kind in ("limits", "requests"):
        amounts: Mapping[str, object] = mapping(resources.get(kind), f"{path}.resources.{kind}")
        resources[kind] = {name: value for name, value in amounts.items() if name not in hidden}
    return {**container, "resources": resources}


def of_several_families(found: Iterable[PodRequest | None]) -> PodRequest | None:
    """Return the request of a pod from those for each of its families.

    The first one also requests the CPU and memory of the pod, and the zones of its node. It is the one that requires a
    policy for zones, if one does.

    Raises:
        InvalidRequest: cards of several families have to be aligned to zones.

    """
    asked = sorted((each for each in found if each is not None), key=lambda each: not _requires_zones(each))
    if not asked:
        return None
    first, *rest = asked
    for each in rest:
        if _requires_zones(each):
            fix = (
                f"the cards of {first.family} and {each.family} cannot be aligned to zones together; require it of one"
            )
            raise invalid("metadata.annotations", str(each.requirement.alignment.policy), fix)
    further = tuple(_cards_alone(each, number) for number, each in enumerate(rest, start=1))
    warnings = tuple(dict.fromkeys(warning for each in asked for warning in each.warnings))
    return replace(first, further=further, warnings=warnings)


def _requires_zones(asked: PodRequest) -> bool:
    return replace(asked.requirement.alignment, links=None).required


def _cards_alone(asked: PodRequest, number: int) -> PodRequest:
    """Return the request for the cards of a further family, without what the pod requests once."""
    return replace(
        asked,
        uid=family_id(asked.uid, number),
        requirement=_alone(asked.requirement),
        together=tuple(map(_alone, asked.together)),
        claim=replace(asked.claim, gang=None),
    )


def _alone(asked: ResourceRequirement) -> ResourceRequirement:
    alignment = Alignment(ZonePolicy.NONE, links=asked.alignment.links)
    return replace(asked, cpu_milli=0, memory_bytes=0, alignment=alignment)
