"""A drawing of a machine in text: its zones and devices, the links between devices, the distances."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from ullage.cli.parts import show_fraction
from ullage.cli.size import show_size
from ullage.cli.table import format_table, one_line
from ullage.cli.times import show_time
from ullage.model.counted import counted
from ullage.model.quantity import format_bytes
from ullage.model.topology import Device, Room
from ullage.wire.node_topology import LinkBody, PlacedCardBody, TopologyBody, ZoneBody

_WIDTH = 80
_INDENT = "  "
_UNKNOWN = "?"

_PATHS = {
    "NV": "NV#: # bonded NVLinks",
    "BOARD": "BOARD: one board",
    "PIX": "PIX: at most one PCIe bridge",
    "PXB": "PXB: several PCIe bridges",
    "PHB": "PHB: a PCIe host bridge",
    "NODE": "NODE: host bridges of one zone",
    "SYS": "SYS: between zones",
    _UNKNOWN: "?: not known",
}
"""The meaning of the cells of the link matrix, nearest first."""

Row = tuple[tuple[int, ...], tuple[str, ...]]
"""The zones of a device, and the cells of its row."""


def draw_machine(body: TopologyBody, width: int | None = None) -> str:
    """Return the drawing with a final line break. `width` limits the columns; None does not break lines."""
    parts = [_head(body, width or _WIDTH), *_zones(body, width), _links(body, width), _distances(body, width)]
    return "\n".join(part for part in parts if part)


def names(body: TopologyBody) -> dict[str, str]:
    """Return the names of devices by uuid: `gpu0`, `nic1`."""
    cards = {card.uuid: f"gpu{card.index}" for card in body.cards}
    return cards | {device.uuid: f"{device.resource.rpartition('/')[2]}{device.index}" for device in body.devices}


def _head(body: TopologyBody, width: int) -> str:
    lines = [f"{body.node}: {_size(body)}"]
    if body.kubelet is not None:
        kubelet = body.kubelet
        managed = [word for word, on in (("CPUs", kubelet.static_cpus), ("memory", kubelet.static_memory)) if on]
        lines.append(f"kubelet: {kubelet.policy} per {kubelet.scope}; {' and '.join(managed) or 'nothing'} static")
        if kubelet.unmodelled:
            lines.append(f"predictions are less exact: the kubelet has enabled {', '.join(kubelet.unmodelled)}")
    if body.reserved_cpus:
        lines.append(f"reserved: CPUs {body.reserved_cpus}")
    elif body.reserved_count:
        lines.append(f"reserved: {counted(body.reserved_count, 'CPU')}")
    if body.unplaced_cpus:
        lines.append(f"CPUs of an unknown zone: {body.unplaced_cpus}")
    if body.note:
        lines.append(f"note: {body.note}")
    return "".join(f"{_wrapped(line, width)}\n" for line in lines)


def _size(body: TopologyBody) -> str:
    if body.source is None:
        return "its topology is not known" + ("" if body.note else "; its kernel reports no zones")
    read = "" if body.observed_at is None else f" at {show_time(body.observed_at)}"
    return f"{counted(len(body.zones), 'zone')}, read from {body.source or 'an unknown source'}{read}"


def _zones(body: TopologyBody, width: int | None) -> Iterator[str]:
    """Yield a block per zone, and one for the devices of an unknown zone."""
    rows = [*map(_card, body.cards), *(_device(device, names(body)[device.uuid]) for device in body.devices)]
    lines = _aligned([cells for _, cells in rows], width)
    titles = {zone: f"zone {zone}" for zones, _ in rows for zone in zones} | {
        zone.id: _wrapped(_zone(zone), width or _WIDTH) for zone in body.zones
    }
    for id_, title in sorted(titles.items()):
        inside = [lines[place] for place, (zones, _) in enumerate(rows) if id_ in zones]
        yield "".join([title, "\n", *inside])
    outside = [lines[place] for place, (zones, _) in enumerate(rows) if not zones]
    if outside:
        yield "".join(["zone unknown\n", *outside])


def _zone(zone: ZoneBody) -> str:
    cells = [f"zone {zone.id}"]
    if zone.cpus:
        sockets = ",".join(map(str, zone.sockets))
        held = f"; held {zone.held_cpus}" if zone.held_cpus else ""
        cells.append(f"CPUs {zone.cpus} ({counted(zone.cores, 'core')}, socket {sockets}{held})")
    elif not zone.amounts:
        cells.append("no CPUs")
    cells.append("memory unknown" if zone.memory is None else f"memory {_room(zone.memory)}")
    cells += [f"{format_bytes(int(size))} pages {show_size(room.total)}" for size, room in zone.hugepages.items()]
    cells += [f"{resource} {room.allocatable} of {room.total}" for resource, room in zone.amounts.items()]
    return "   ".join(cells)


def _room(room: Room) -> str:
    total = show_size(room.total)
    return total if room.allocatable == room.total else f"{show_size(room.allocatable)} of {total}"


def _card(card: PlacedCardBody) -> Row:
    cells = (f"gpu{card.index}", card.model or "model unknown", _state(card), card.bus_id or "", _several(card.zones))
    return tuple(card.zones), cells


def _device(device: Device, name: str) -> Row:
    state = "" if device.healthy else "unhealthy"
    return tuple(device.zones), (name, device.model or "", state, device.bus_id or "", _several(device.zones))


def _state(card: PlacedCardBody) -> str:
    if not card.healthy:
        return "unhealthy"
    if card.free is None:
        return ""
    if not card.holders:
        return "free"
    held = f"held by {', '.join(card.holders)}"
    return f"{show_fraction(card.free)} free, {held}" if card.free else held


def _several(zones: Sequence[int]) -> str:
    return f"in zones {','.join(map(str, zones))}" if len(zones) > 1 else ""


def _aligned(rows: Sequence[tuple[str, ...]], width: int | None) -> list[str]:
    """Return the rows with aligned columns, without empty columns."""
    shown = [n for n in range(5) if any(row[n] for row in rows)]
    if not shown:
        return []
    cells = [tuple(row[n] for n in shown) for row in rows]
    text = format_table([""] * len(shown), cells, None if width is None else width - len(_INDENT))
    return [f"{_INDENT}{line}\n" for line in text.splitlines()[1:]]


def _links(body: TopologyBody, width: int | None) -> str:
    """Return the link matrix: columns are cards, rows are cards and other devices. A narrow width splits it."""
    if not (body.links and body.cards):
        return ""
    known, called = {frozenset((link.a, link.b)): _link(link) for link in body.links}, names(body)
    across = [card.uuid for card in body.cards]
    down = [*across, *(device.uuid for device in body.devices)]
    cells = {(a, b): "-" if a == b else known.get(frozenset((a, b)), _UNKNOWN) for a in down for b in across}
    tables = []
    for some in _pieces(across, max(map(len, (*called.values(), "links"))), 5, width):
        rows = [(called[a], *(cells[a, b].rjust(5) for b in some)) for a in down]
        tables.append(format_table(["links", *(called[b].rjust(5) for b in some)], rows))
    return "\n".join([*tables, _legend(cells.values(), width or _WIDTH)])


def _link(link: LinkBody) -> str:
    if link.nvlinks:
        return f"NV{link.nvlinks}"
    return link.path if link.path in _PATHS else _UNKNOWN


def _pieces(across: Sequence[str], first: int, each: int, width: int | None) -> Iterator[Sequence[str]]:
    """Yield the columns of each table: as many of `each` characters as fit next to a first one of `first`."""
    most = len(across) if width is None else max(1, (width - first) // (each + len(_INDENT)))
    for start in range(0, len(across), most):
        yield across[start : start + most]


def _legend(cells: Iterable[str], width: int) -> str:
    shown = {"NV" if cell.startswith("NV") else cell for cell in cells}
    return _wrapped("; ".join(text for path, text in _PATHS.items() if path in shown), width) + "\n"


def _distances(body: TopologyBody, width: int | None) -> str:
    """Return the distance matrix. A narrow width splits it."""
    if len(body.zones) < 2:  # noqa: PLR2004 - a zone is at no distance from itself
        return ""
    if not body.distances:
        return "distances between zones: not known\n"
    far = dict(zip((str(zone.id) for zone in body.zones), zip(*body.distances, strict=True), strict=True))
    each = max(len(str(distance)) for row in body.distances for distance in row)
    tables = []
    for some in _pieces(list(far), len("distance"), max(each, len(str(body.zones[-1].id))), width):
        rows = [(f"zone {zone.id}", *(str(far[id_][row]) for id_ in some)) for row, zone in enumerate(body.zones)]
        tables.append(format_table(["distance", *some], rows))
    return "\n".join(tables)


def _wrapped(text: str, width: int) -> str:
    return textwrap.fill(
        one_line(text),
        width,
        subsequent_indent=_INDENT,
        break_long_words=True,
        break_on_hyphens=False,
        drop_whitespace=True,
    )
