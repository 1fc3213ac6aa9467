"""What a webhook writes on a pod of a family: amounts, environment and annotations that its device plugin reads."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from ullage.model.quantity import PPM
from ullage.wire.vendors.container_request import MIB, ContainerRequest
from ullage.wire.vendors.family import Family


def webhook_amounts(family: Family, request: ContainerRequest, stated: Container[str]) -> dict[str, str]:
    """Return the amounts of one container with cards, by resource: those that it leaves open, or that are rounded."""
    own, found = family.resources, {}
    if own.count not in stated and family.count.means == "cards" and not request.counts_cores:
        found[own.count] = str(request.count)
    if own.count in stated and family.count.step > 1:
        found[own.count] = str(request.count)
    if "memory" in family.webhook.complete:
        found[own.memory] = str(_memory(family, request))
    if "cores" in family.webhook.complete and _cores(family, request, own.cores in stated):
        found[own.cores] = str(_cores(family, request, own.cores in stated))
    return found


def _memory(family: Family, request: ContainerRequest) -> int:
    """Return the units of memory, of all cards of the container where it states the sum of several."""
    mib = request.vram_bytes // MIB or request.written_mib or family.memory.default_mib
    return mib // family.memory.unit_mib * (request.count if family.memory.of_several_mib else 1)


def _cores(family: Family, request: ContainerRequest, stated: bool) -> int:
    """Return the cores of all cards of a container with several; of one card only where none are stated."""
    if request.count == 1 and (stated or not family.cores.of_whole):
        return 0
    units = request.cores_ppm * family.cores.per_card // PPM if request.count == 1 else family.cores.of_several
    return units * request.count


def webhook_variables(family: Family, request: ContainerRequest) -> dict[str, str]:
    """Return the environment of one container."""
    policy = family.webhook.core_policy
    values = {"container": request.name, "priority": request.task_priority}
    return _known(family.webhook.env, values | {"core_policy": None if policy == "default" else policy})


def hiding_variables(families: Iterable[Family], stated: Container[str]) -> dict[str, str]:
    """Return the environment of a container that hides cards of which it requests none.

    `stated` are the resources that it requests. A variable that several families share is written only if the container
    requests cards of none of them.
    """
    found: dict[str, str] = {}
    needed: set[str] = set()
    for family in families:
        own, rule = family.resources, family.webhook
        if any(name in stated for name in (own.count, *family.amounts) if name and name != own.priority):
            needed.update(rule.env_without_cards)
        elif rule.hides_cards:
            found |= rule.env_without_cards
    return {name: value for name, value in found.items() if name not in needed}


def webhook_annotations(family: Family, requests: Sequence[ContainerRequest]) -> dict[str, str]:
    """Return the annotations of a pod, if it has none of the same name."""
    most = max((request.count for request in requests), default=0)
    found = _known(family.webhook.annotations, {"several": most if most > 1 else None})
    if family.classes is not None:
        found[family.classes.annotation] = family.classes.default
    return found


def _known(texts: Mapping[str, str], values: Mapping[str, object]) -> dict[str, str]:
    """Return the texts with their values; those of which a value is None are left out."""
    known = {name: value for name, value in values.items() if value is not None and value != ""}
    return {
        key: text.format_map(known)
        for key, text in texts.items()
        if all(f"{{{name}}}" not in text for name in values if name not in known)
    }
