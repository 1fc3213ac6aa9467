"""Warnings of settings that this machine cannot satisfy."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.bootstrap.settings import Settings
from ullage.inventory.facts import absent
from ullage.inventory.machine import MachineSettings
from ullage.model.guarantees import distinct, unmet_guarantees
from ullage.model.node import Node
from ullage.model.quantity import format_bytes
from ullage.model.resources import DIMENSIONS, Resources, show_milli


def unsatisfiable(settings: Settings, machine: MachineSettings, node: Node) -> list[str]:
    """Return one sentence for each setting that this machine cannot satisfy.

    They are no errors: a server must start in spite of a failed card or a smaller container.
    """
    return list(_sentences(settings, machine, node))


def _sentences(settings: Settings, machine: MachineSettings, node: Node) -> Iterator[str]:
    for name, left, most in zip(DIMENSIONS, node.allocatable, node.capacity, strict=True):
        if most and not left:
            yield f"node.reserved: all {name} of this machine ({_shown(name, most)}) is reserved: no work can run"
    requirement = settings.default_requirement()
    if requirement is not None:
        for name, asked, there in _above(requirement.resources, node.allocatable):
            yield f"resreq: {name} {asked} is more than this machine has for work ({there}): sessions need their own"
    yield from distinct(unmet_guarantees(settings.share_tree(), node.allocatable))
    for card in absent(node.gpus, machine.facts):
        yield f"node.card: the settings describe {card}, but this machine has no such card"


def _above(asked: Resources, there: Resources) -> Iterator[tuple[str, str, str]]:
    for name, amount, most in zip(DIMENSIONS, asked, there, strict=True):
        if amount > most:
            yield name, _shown(name, amount), _shown(name, most)


def _shown(name: str, amount: int) -> str:
    return format_bytes(amount) if name == "memory" else show_milli(amount)
