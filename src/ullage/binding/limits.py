"""The limits of nodes, and the quotas of owners over all their applications.

A node accepts nothing that would fill more than nine tenths of its CPUs or memory. An owner above its quota keeps what
it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ullage.binding.view import BindingView
from ullage.model.binding import ShareMode
from ullage.model.compute import EVERY_OWNER, AppKey, BoundCard, CardKey, ComputeNode, HostRoom
from ullage.model.compute_result import Dimension, NodePressure

NOTHING = HostRoom()
_FULL_TENTHS = 9


def pressure(node: ComputeNode, added: HostRoom) -> NodePressure:
    """Return the usage of a node after an addition. The disk counts only if the addition uses some."""
    return NodePressure(node.name, _dimensions(node.capacity, node.used, added, _FULL_TENTHS))


def too_full(node: ComputeNode, added: HostRoom) -> bool:
    return any(_over(node.capacity, node.used, added, _FULL_TENTHS))


def overall(nodes: Iterable[ComputeNode], added: HostRoom) -> tuple[Dimension, ...]:
    nodes = tuple(nodes)
    capacity, used = _sum(node.capacity for node in nodes), _sum(node.used for node in nodes)
    return _dimensions(capacity, used, added, _FULL_TENTHS)


def requested(node: ComputeNode, added: HostRoom) -> tuple[Dimension, ...]:
    """Return the requests of pods on a node after an addition. They may fill the node."""
    return _dimensions(node.capacity, node.requested, added, 10)


def overcommitted(node: ComputeNode, added: HostRoom) -> bool:
    return any(_over(node.capacity, node.requested, added, 10))


def _dimensions(capacity: HostRoom, used: HostRoom, added: HostRoom, tenths: int) -> tuple[Dimension, ...]:
    over = _over(capacity, used, added, tenths)
    return tuple(
        Dimension(resource, more, before, there, pressured=pressured)
        for (resource, there, before, more), pressured in zip(_amounts(capacity, used, added), over, strict=True)
    )


def _over(capacity: HostRoom, used: HostRoom, added: HostRoom, tenths: int) -> Iterator[bool]:
    return (10 * (before + more) > tenths * there for _, there, before, more in _amounts(capacity, used, added))


def _amounts(capacity: HostRoom, used: HostRoom, added: HostRoom) -> Iterator[tuple[str, int, int, int]]:
    """Yield each resource with its total (0 if unknown), what is used, and what is added."""
    if capacity.cpu_milli:
        yield "cpu", capacity.cpu_milli, used.cpu_milli, added.cpu_milli
    if capacity.memory_bytes:
        yield "memory", capacity.memory_bytes, used.memory_bytes, added.memory_bytes
    if capacity.disk_bytes and added.disk_bytes:
        yield "disk", capacity.disk_bytes, used.disk_bytes, added.disk_bytes


def _sum(rooms: Iterable[HostRoom]) -> HostRoom:
    amounts = [(room.cpu_milli, room.memory_bytes, room.disk_bytes) for room in rooms]
    return HostRoom(*map(sum, zip(*amounts, strict=True))) if amounts else HostRoom()


def of_quota(
    view: BindingView, app: AppKey, added: HostRoom = NOTHING, rows: Iterable[BoundCard] = ()
) -> tuple[Dimension, ...]:
    """Return the usage of the quota of an owner after adding this room and these rows, which are not in the view.

    Only limited amounts are returned. An addition of nothing never exceeds a quota.
    """
    quota = view.quotas.get(app.owner) or view.quotas.get(EVERY_OWNER)
    if quota is None:
        return ()
    used = view.owner_use.get(app.owner, HostRoom())
    there = [row for row in view.rows if row.app.owner == app.owner]
    cards, memory = _on_cards(view, there)
    more_cards, more_memory = _on_cards(view, [*there, *rows])
    amounts = (
        ("cards", quota.cards, cards, more_cards - cards),
        ("vram", quota.vram_bytes, memory, more_memory - memory),
        ("cpu", quota.cpu_milli, used.cpu_milli, added.cpu_milli),
        ("memory", quota.memory_bytes, used.memory_bytes, added.memory_bytes),
    )
    return tuple(
        Dimension(resource, more, before, most, pressured=more > 0 and before + more > most)
        for resource, most, before, more in amounts
        if most is not None
    )


def beyond_quota(view: BindingView, app: AppKey, rows: Iterable[BoundCard]) -> str:
    """Return the rejection code if these rows exceed the quota of the owner, else ""."""
    short = [each.resource for each in of_quota(view, app, rows=rows) if each.pressured]
    return f"owner-quota:{short[0]}" if short else ""


def _on_cards(view: BindingView, rows: Iterable[BoundCard]) -> tuple[int, int]:
    """Return the number of cards, and their bytes: the amounts on sliced cards, and each other card once, whole."""
    shared: dict[tuple[AppKey, CardKey], int] = {}
    whole: dict[CardKey, int] = {}
    for row in rows:
        if row.share is ShareMode.MEMORY_SLICE:
            key = row.app, row.card
            shared[key] = max(shared.get(key, 0), row.memory_bytes)
        else:
            card = view.cards.get(row.card)
            whole[row.card] = card.memory_bytes if card is not None else 0
    cards = whole.keys() | {card for _, card in shared}
    return len(cards), sum(whole.values()) + sum(shared.values())
