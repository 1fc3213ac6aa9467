"""HyperNode (`topology.volcano.sh/v1alpha1`): domains above the node, in tiers of which the lowest is the fastest.

HyperNodes are written by Volcano's network topology controllers, or by hand; they are cluster-scoped. The members of
one are nodes, by name, pattern or label, or HyperNodes of lower tiers by name or pattern. Here each tier is a label of
its nodes, like every other level above the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from ullage.model.error import invalid
from ullage.wire.document import Document, mapping, mappings, section, text, whole
from ullage.wire.topology.dropped import Dropped, as_object

KIND = "HyperNode"

TIER_LABEL = "topology.volcano.sh/tier-"
"""The prefix, followed by the number of a tier, of the label with the node's HyperNode of that tier."""

MAX_TIER = 64

Matches = Callable[[str, str], bool]
"""Return whether a pattern is found in a name. Raises UllageError: it is malformed, or patterns are unavailable."""


class Of(Enum):
    """The kind of a member."""

    NODE = "Node"
    HYPERNODE = "HyperNode"


@dataclass(frozen=True, slots=True)
class Member:
    """A selector of members: a name, a pattern in the name, or all of these labels; exactly one of the three."""

    of: Of
    name: str = ""
    pattern: str = ""
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class HyperNode:
    """A domain of nodes. `tier_name` is the name of its tier, "" without one."""

    name: str
    tier: int
    members: tuple[Member, ...]
    tier_name: str = ""


def read_hypernode(document: object) -> tuple[HyperNode, tuple[str, ...]]:
    """Return a HyperNode, and a sentence for each member that was dropped."""
    found, name = as_object(document, KIND)
    dropped, members = Dropped(), list[Member]()
    spec = section(found, "spec")
    tier = whole(spec.get("tier"), "spec.tier", MAX_TIER)
    for path, member in mappings(spec.get("members"), "spec.members"):
        with dropped.entry():
            members.append(_member(member, path))
    return HyperNode(name, tier, tuple(members), text(spec.get("tierName"))), dropped.warnings


def _member(member: Document, path: str) -> Member:
    kind, selector = text(member.get("type")), mapping(member.get("selector"), f"{path}.selector")
    if kind not in (each.value for each in Of):
        raise invalid(f"{path}.type", kind, "Node or HyperNode is needed")
    exact, pattern, labels = (
        mapping(selector.get(key), f"{path}.selector.{key}") for key in ("exactMatch", "regexMatch", "labelMatch")
    )
    of, named, like = Of(kind), text(exact.get("name")), text(pattern.get("pattern"))
    wanted = mapping(labels.get("matchLabels"), f"{path}.selector.labelMatch.matchLabels")
    if labels.get("matchExpressions"):
        raise invalid(f"{path}.selector.labelMatch.matchExpressions", "there", "only matchLabels are read")
    if bool(named) + bool(like) + bool(wanted) != 1:
        raise invalid(f"{path}.selector", sorted(selector), "one of exactMatch, regexMatch and labelMatch is needed")
    if wanted and of is Of.HYPERNODE:
        raise invalid(f"{path}.selector", "labelMatch", "HyperNodes are members by name or pattern")
    return Member(of, named, like, tuple(sorted((key, text(value)) for key, value in wanted.items())))


def tiers_of(
    hypernodes: Iterable[HyperNode], nodes: Mapping[str, Mapping[str, str]], matches: Matches
) -> tuple[dict[str, dict[str, str]], tuple[str, ...]]:
    """Return the tier labels of each node that is in a HyperNode, and a sentence for each contradiction.

    `nodes` are the labels of all nodes by name. A node is in one HyperNode of a tier: of several, in the first by
    name. A member of the same or a higher tier is not counted.
    """
    in_order = sorted(hypernodes, key=lambda each: (each.tier, each.name))
    tiers = {each.name: each.tier for each in in_order}
    labels, inside, dropped = dict[str, dict[str, str]](), dict[str, set[str]](), Dropped()
    for each in in_order:
        names = inside[each.name] = set()
        for member in each.members:
            with dropped.entry():
                if member.of is Of.NODE:
                    names.update(_nodes_of(member, nodes, matches))
                    continue
                lower = [name for name in _named(member, tiers, matches) if tiers[name] < each.tier]
                if member.name in tiers and not lower:
                    dropped.warn(f"{each.name}: {member.name} is of tier {tiers[member.name]}, not below {each.tier}")
                names.update(*(inside[name] for name in lower))
        for name in sorted(names):
            first = labels.setdefault(name, {}).setdefault(f"{TIER_LABEL}{each.tier}", each.name)
            if first != each.name:
                dropped.warn(f"{each.name}: node {name} is in {first} already, of the same tier")
    return labels, dropped.warnings


def _nodes_of(member: Member, nodes: Mapping[str, Mapping[str, str]], matches: Matches) -> list[str]:
    if member.labels:
        wanted = set(member.labels)
        return [name for name, has in nodes.items() if wanted <= has.items()]
    return _named(member, nodes, matches)


def _named(member: Member, names: Mapping[str, object], matches: Matches) -> list[str]:
    if member.name:
        return [member.name] if member.name in names else []
    return [name for name in names if matches(name, member.pattern)]
