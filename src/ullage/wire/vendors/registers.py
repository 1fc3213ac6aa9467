"""The cards of a node, as the agents of a family register them in an annotation, or as its capacity counts them."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Annotated, Any

import msgspec

from ullage.model.error import invalid, invalid_annotation
from ullage.model.gpu import Gpu
from ullage.model.links import links_by_group
from ullage.model.name import MAX_NAME
from ullage.model.part import Isolation
from ullage.model.quantity import MAX_INT32
from ullage.model.topology import Link, Path
from ullage.wire.kubernetes_quantity import parse_quantity
from ullage.wire.vendors.annotation import MAX_DEVICES, decoded
from ullage.wire.vendors.family import Family
from ullage.wire.vendors.mig_profiles import MigProfile, partitions_of
from ullage.wire.vendors.profiles import read_profiles
from ullage.wire.vendors.scores import read_scores

MIB = 2**20
_MOST_MIB = 2**30
_COUNT = re.compile(r"[0-9]{1,9}")
_MIG = "mig"
_SOFTLY = frozenset({Isolation.SHARED, Isolation.SOFT})
_ISOLATIONS = {_MIG: frozenset({Isolation.PARTITIONED}), "mps": _SOFTLY | {Isolation.HARD}}
"""The isolation modes of a card by the mode in which its agent runs it."""

_FIELDS = (7, 9, 10)
NO_FACTS: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class NodeText:
    """What a node says of itself: its name, annotations, and amounts of resources by name."""

    name: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    amounts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RegisteredCard:
    """A card, its cores in the units of its family, and further facts that its agent states."""

    gpu: Gpu
    cores: int
    facts: Mapping[str, Any] = field(default_factory=lambda: NO_FACTS)
    index: int | None = None
    """The index at its vendor, if it is not that in the inventory."""


def registered_cards(family: Family, node: NodeText) -> tuple[RegisteredCard, ...] | None:
    """Return the cards of a family on a node; None where nothing says that it has any.

    Raises:
        InvalidRequest: the register cannot be read, has a card twice, or has too many cards.

    """
    rule = family.register
    if rule.format == "capacity":
        return _counted(family, node) if rule.cards in node.amounts else None
    text = node.annotations.get(rule.annotation)
    if text is None:
        return None
    soft = not rule.soft_on or node.annotations.get(rule.soft_on) == "true"
    found = tuple(_FORMATS[rule.format](family, node, text, soft))
    if len({card.gpu.uuid for card in found}) != len(found):
        raise invalid_annotation(rule.annotation, text, "each card is there once")
    return found


def registered_links(family: Family, node: NodeText) -> tuple[Link, ...]:
    """Return the links between the cards of a node that its register states; none where it states none.

    Raises:
        InvalidRequest: they cannot be read.

    """
    rule, groups = family.register, defaultdict[Hashable, list[str]](list)
    if rule.links in node.annotations:
        return read_scores(node.annotations[rule.links], key=rule.links)
    for card in (registered_cards(family, node) or ()) if rule.island else ():
        if isinstance(name := card.facts.get(rule.island), int | float | str):
            groups[name].append(card.gpu.uuid)
    return links_by_group(groups.values(), Path.UNKNOWN, 1)


def serves(family: Family, node: NodeText) -> bool:
    """Return whether a node has cards of a family, so that its plugin or its tools read what is written on pods."""
    rule = family.register
    return (rule.cards in node.amounts) if rule.format == "capacity" else (rule.annotation in node.annotations)


def _checked(count: int, key: str) -> int:
    if count > MAX_DEVICES:
        raise invalid_annotation(key, f"{count} cards", f"at most {MAX_DEVICES} cards of one node are read")
    return count


def _isolations(family: Family, mode: str, *, soft: bool) -> frozenset[Isolation] | None:
    """Return the modes in which a card isolates its users; None where its agent does not isolate them."""
    if mode in family.modes and mode in _ISOLATIONS:
        return _ISOLATIONS[mode]
    if family.parts == "none":
        return None
    return _modes(family.parts, soft=soft and Isolation.SOFT in family.modes.values())


@cache  # tens of thousands of cards have one of a few values, here and below
def _modes(parts: str, *, soft: bool) -> frozenset[Isolation]:
    own = frozenset({Isolation.SHARED, Isolation(parts)})
    return own | {Isolation.SOFT} if soft else own


@lru_cache(256)
def _zones(zone: int) -> tuple[int, ...]:
    return (zone,) if zone >= 0 else ()


# --- HAMi's register ---


class _Registered(msgspec.Struct, frozen=True):
    """A card as its agent writes it; Go omits fields that are zero."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
    index: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT32)] = 0
    count: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT32)] = 0
    devmem: Annotated[int, msgspec.Meta(ge=0, le=_MOST_MIB)] = 0
    devcore: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT32)] = 0
    type: Annotated[str, msgspec.Meta(max_length=MAX_NAME)] = ""
    numa: Annotated[int, msgspec.Meta(ge=-MAX_INT32, le=MAX_INT32)] = 0
    mode: str = ""
    health: bool = False
    mig_profiles: list[MigProfile] = msgspec.field(default_factory=list, name="migProfiles")
    custominfo: dict[str, Any] | None = None


def _of_hami(family: Family, _node: NodeText, text: str, soft: bool) -> Iterator[RegisteredCard]:
    key, written = family.register.annotation, text.strip()
    found: list[_Registered]
    found = decoded(written, list[_Registered], key) if written[:1] in ("[", "{") else _from_fields(written, key)
    _checked(len(found), key)
    for card in found:
        sliced = card.mode == _MIG and _MIG in family.modes
        gpu = Gpu(
            card.id,
            card.index,
            model=sys.intern(card.type) or None,
            vendor=family.name,
            vram_bytes=card.devmem * MIB,
            zones=_zones(card.numa),
            healthy=card.health,
            isolation=Isolation.PARTITIONED if sliced else None,
            isolations=_isolations(family, card.mode, soft=soft),
            max_users=card.count,
            partitions=partitions_of(card.mig_profiles, key) if sliced else None,
        )
        yield RegisteredCard(gpu, card.devcore, card.custominfo or NO_FACTS)


def _from_fields(text: str, key: str) -> list[_Registered]:
    """Return the cards of an older register: `uuid,count,MiB,cores,type,numa,health[,index,mode]:` of each."""
    found = []
    for number, entry in enumerate(filter(None, (part.strip() for part in text.split(":")))):
        fields = [field.strip() for field in entry.split(",")]
        if len(fields) not in _FIELDS or number == MAX_DEVICES + 1:
            raise invalid_annotation(key, entry, "write JSON, or 7, 9 or 10 fields for each of the cards")
        id_, count, memory, cores, type_, numa, health, *rest = fields
        index, mode = (rest[0], rest[1]) if rest else (str(number), "")
        card: dict[str, Any] = {"id": id_, "type": type_, "mode": mode}
        card |= {"count": count, "devmem": memory, "devcore": cores, "numa": numa, "index": index}
        card["health"] = health.lower() == "true"
        found.append(_converted(card, key, entry))
    return found


# --- registers of vendors ---


class _MetaxDevice(msgspec.Struct, frozen=True, rename="camel"):
    uuid: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
    model: Annotated[str, msgspec.Meta(max_length=MAX_NAME)] = ""
    total_dev_count: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT32)] = 0
    total_compute: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT32)] = 0
    total_v_ram: Annotated[int, msgspec.Meta(ge=0, le=_MOST_MIB)] = 0
    numa: Annotated[int, msgspec.Meta(ge=-MAX_INT32, le=MAX_INT32)] = 0
    healthy: bool = False
    qos_policy: str = ""
    link_zone: int = 0


def _of_metax(family: Family, _node: NodeText, text: str, soft: bool) -> Iterator[RegisteredCard]:
    key = family.register.annotation
    found: list[_MetaxDevice] = decoded(text, list[_MetaxDevice], key)
    _checked(len(found), key)
    for index, card in enumerate(found):
        gpu = Gpu(
            card.uuid,
            index,
            model=sys.intern(card.model) or None,
            vendor=family.name,
            vram_bytes=card.total_v_ram * MIB,
            zones=_zones(card.numa),
            healthy=card.healthy,
            isolations=_isolations(family, "", soft=soft),
            max_users=card.total_dev_count,
        )
        zone = {"LinkZone": card.link_zone} if card.link_zone > 0 else {}
        yield RegisteredCard(gpu, card.total_compute, {"class": card.qos_policy, **zone})


class _DrsDevice(msgspec.Struct, frozen=True):
    capacity: int | str
    index: str = ""
    minor: str = ""


class _DrsCapacity(msgspec.Struct, frozen=True):
    devices: list[_DrsDevice] = []
    profiles: dict[str, str] = {}


def _of_drs(family: Family, node: NodeText, text: str, soft: bool) -> Iterator[RegisteredCard]:
    key = family.register.annotation
    found: _DrsCapacity = decoded(text, _DrsCapacity, key)
    _checked(len(found.devices), key)
    profiles = read_profiles(found.profiles)
    if not profiles:
        raise invalid_annotation(key, text, "it names no profile such as 1g.6gb")
    for number, card in enumerate(found.devices):
        index = number if _COUNT.fullmatch(card.index) is None else int(card.index)
        capacity = _whole(str(card.capacity).strip(), key)
        gpu = Gpu(
            family.register.uuid.format(node=node.name, index=index),
            index,
            vendor=family.name,
            vram_bytes=max(each.memory_gib for each in profiles) * 1024 * MIB,
            isolations=_isolations(family, "", soft=soft),
            max_users=capacity,
        )
        facts = {"minor": card.minor.strip() or str(index), "profiles": profiles}
        yield RegisteredCard(gpu, family.cores.per_card, facts)


def _whole(text: str, key: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= MAX_INT32):
        raise invalid_annotation(key, text, "the capacity of a card is a whole number above 0")
    return int(text)


_VOLCANO_FIELDS = (5, 6)


def _of_volcano(family: Family, _node: NodeText, text: str, soft: bool) -> Iterator[RegisteredCard]:
    """Yield the cards in a register `uuid,count,MiB,type,health[,mode]:` of each, as Volcano's device plugin writes it.

    Cards that are divided by MIG have no mode of isolation that a request may have.
    """
    key = family.register.annotation
    entries = [entry for each in text.split(":") if (entry := each.strip())]
    _checked(len(entries), key)
    for index, entry in enumerate(entries):
        fields = [field.strip() for field in entry.split(",")]
        if len(fields) not in _VOLCANO_FIELDS:
            raise invalid_annotation(key, entry, "write uuid,count,MiB,type,health,mode of each card")
        id_, count, memory, type_, health, *mode = fields
        card = _converted({"id": id_, "count": count, "devmem": memory, "type": type_}, key, entry)
        divided = mode == [_MIG]
        gpu = Gpu(
            card.id,
            index,
            model=sys.intern(card.type) or None,
            vendor=family.name,
            vram_bytes=card.devmem * MIB,
            healthy=health.lower() == "true",
            isolation=Isolation.PARTITIONED if divided else None,
            isolations=_ISOLATIONS[_MIG] if divided else _isolations(family, "", soft=soft),
            max_users=card.count,
        )
        yield RegisteredCard(gpu, family.cores.per_card)


def _converted(card: dict[str, Any], key: str, entry: str) -> _Registered:
    try:
        return msgspec.convert(card, _Registered, strict=False)
    except msgspec.ValidationError as error:
        raise invalid_annotation(key, entry, str(error)) from None


_Read = Callable[[Family, NodeText, str, bool], Iterator[RegisteredCard]]
_FORMATS: Mapping[str, _Read] = {"hami": _of_hami, "volcano": _of_volcano, "metax": _of_metax, "drs": _of_drs}


# --- capacity ---


def _counted(family: Family, node: NodeText) -> tuple[RegisteredCard, ...]:
    """Return the cards that the capacity of a node counts. Their memory is what it says of all, in equal parts."""
    rule, unit = family.register, family.memory.unit_mib
    amount = _amount(node, rule.cards)
    count = -(-amount // rule.per_card)
    if count > MAX_DEVICES:
        raise invalid(rule.cards, node.amounts[rule.cards], f"at most {MAX_DEVICES} cards of one node are read")
    mib = rule.memory_mib
    if rule.memory and amount:
        mib = _amount(node, rule.memory) * unit * rule.per_card // amount
    cores = family.cores.per_card
    if rule.cores and count:
        cores = _amount(node, rule.cores) // count or cores
    users = rule.users or (cores if rule.cores else None)
    return tuple(_card(family, node, number, _Counted(count, mib, cores, users)) for number in range(count))


@dataclass(frozen=True, slots=True)
class _Counted:
    count: int
    mib: int
    cores: int
    users: int | None


def _card(family: Family, node: NodeText, number: int, counted: _Counted) -> RegisteredCard:
    zones = family.register.zones
    gpu = Gpu(
        family.register.uuid.format(node=node.name, index=number),
        number,
        vendor=family.name,
        vram_bytes=counted.mib * MIB or None,
        zones=(min(number // max(counted.count // zones, 1), zones - 1),) if zones else (),
        isolations=_isolations(family, "", soft=True),
        max_users=counted.users,
    )
    return RegisteredCard(gpu, counted.cores)


def _amount(node: NodeText, resource: str) -> int:
    return parse_quantity(node.amounts.get(resource, "0"), resource, maximum=MAX_INT32)
