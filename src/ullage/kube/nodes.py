"""A Node of the API as a machine of the inventory: its cards as whoever publishes them tells.

Where nobody tells more than a number, as a plain device plugin does, cards are numbered: they can be counted
and held, but not told apart on the machine itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ullage.kube.client.objects import Node as NodeObject
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.node import Node, NodeState
from ullage.model.node_record import NodeRecord
from ullage.model.quantity import parse_count
from ullage.model.resources import MILLI
from ullage.wire.kubernetes_quantity import parse_quantity
from ullage.wire.pod.vendors import NATIVE_RESOURCES

MAX_CARDS = 1024
"""Cards of one machine that are read."""

_PODS = 2**31 - 1
"""How many pods a machine takes that does not say so."""

NO_DOMAINS: Mapping[str, str] = {}

CardReader = Callable[[NodeObject], Sequence[Gpu] | None]
"""The cards that one publisher tells of a machine; None if it says nothing there."""


def node_of(
    node: NodeObject,
    readers: Sequence[CardReader] = (),
    record: NodeRecord | None = None,
    domains: Mapping[str, str] = NO_DOMAINS,
) -> Node:
    """The machine that a Node stands for; the first of the readers that knows its cards counts.

    `record` is what an exporter tells of it: its topology, and its cards where no reader knows them. `domains` are
    labels beside its own, which go before them.
    What cannot be read is left out, and `topology_note` says so: cards of a reader that fails are not guessed at.
    """
    notes: list[str] = []
    amounts = node.status.allocatable or node.status.capacity or {}
    cards: Sequence[Gpu] | None = None
    for reader in readers:
        try:
            cards = reader(node)
        except InvalidRequest as error:
            notes.append(error.message)
            cards = ()
        if cards is not None:
            break
    if cards is None and record is not None and record.cards and all(card.uuid for card in record.cards):
        cards = record.cards
    gpus = _numbered(node.metadata.name, amounts, notes) if cards is None else cards
    return Node(
        name=node.metadata.name,
        cpu_milli=_amount(amounts, "cpu", MILLI, notes),
        memory_bytes=_amount(amounts, "memory", 1, notes),
        gpus=tuple(gpus if record is None else _placed(gpus, record)),
        max_executors=_amount(amounts, "pods", 1, notes) if "pods" in amounts else _PODS,
        labels={**domains, **(node.metadata.labels or {})},
        state=NodeState.READY if node.ready else NodeState.NOT_READY,
        cordoned=node.spec.unschedulable,
        gpu_source="kubernetes",
        topology=None if record is None else record.topology,
        topology_note="; ".join(notes),
    )


def _placed(cards: Sequence[Gpu], record: NodeRecord) -> list[Gpu]:
    """The cards with the places that a record has for them: by uuid, or where it knows none by their order."""
    told = {card.uuid: card for card in record.cards if card.uuid}
    if not told and len(cards) == len(record.cards):
        told = {card.uuid: place for card, place in zip(cards, record.cards, strict=True)}
    return [_at(card, told[card.uuid]) if card.uuid in told else card for card in cards]


def _at(card: Gpu, place: Gpu) -> Gpu:
    return replace(
        card,
        zones=card.zones or place.zones,
        bus_id=card.bus_id or place.bus_id,
        model=card.model or place.model,
        healthy=card.healthy and place.healthy,
    )


def _numbered(name: str, amounts: dict[str, str], notes: list[str]) -> list[Gpu]:
    """Cards of which only the number is known."""
    found: list[Gpu] = []
    for resource, vendor in NATIVE_RESOURCES.items():
        if resource in amounts:
            count = _count(amounts[resource], resource, notes)
            found += [Gpu(f"{name}/{resource}/{number}", len(found) + number, vendor=vendor) for number in range(count)]
    return found


def _count(value: str, resource: str, notes: list[str]) -> int:
    try:
        return parse_count(value, resource, MAX_CARDS)
    except InvalidRequest as error:
        notes.append(error.message)
        return 0


def _amount(amounts: dict[str, str], resource: str, units: int, notes: list[str]) -> int:
    try:
        return parse_quantity(amounts.get(resource, "0"), resource, units=units)
    except InvalidRequest as error:
        notes.append(error.message)
        return 0
