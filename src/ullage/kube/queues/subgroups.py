"""The subgroups of PodGroups: KAI's tree of names, and Volcano's policies, which divide pods by their labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ullage.kube.queues.levels import Levels, Near, by_constraint, by_tier
from ullage.model.claim import Subgroup
from ullage.model.error import NotFound, invalid
from ullage.model.quantity import MAX_INT32
from ullage.wire.document import mappings, named, sequence, text, whole
from ullage.wire.selector import read_selector

KAI_LABEL = "kai.scheduler/subgroup-name"
"""The label with which a pod names its subgroup."""

_DEFAULT = "default"
"""The subgroup of KAI's pods that name none."""

_MISSING = "subgroup-missing"


class Division(NamedTuple):
    """The subgroups of a pod, as in `GangClaim`, and how many members and outermost subgroups start together."""

    required: int
    required_subgroups: int
    path: tuple[Subgroup, ...]


# --- KAI ---


@dataclass(frozen=True, slots=True)
class _KaiSubgroup:
    """A subgroup at its place in the document: the members that it needs, or the subgroups inside it."""

    at: str
    name: str
    parent: str
    document: Mapping[str, Any]
    inside: list[_KaiSubgroup] = field(default_factory=list)

    @property
    def required(self) -> int:
        if self.inside:
            return _required(self.document.get("minSubGroup"), f"{self.at}.minSubGroup", self.inside)
        return whole(self.document.get("minMember"), f"{self.at}.minMember", MAX_INT32)

    @property
    def members(self) -> int:
        """The least number of members with which it starts."""
        return _members(self.required, self.inside) if self.inside else self.required


def of_subgroups(spec: Mapping[str, Any], labels: Mapping[str, str], levels: Levels) -> Division | None:
    """Return the subgroups of a pod in a group of KAI; None if the group has none.

    As KAI does, `minMember` of a group with subgroups is ignored.

    Raises:
        NotFound: the group has no such subgroup, or a topology does not exist. InvalidRequest: the subgroups are no
        tree, or have levels that their topology does not have.

    """
    known = {each.name: each for each in _subgroups(spec)}
    if not known:
        return None
    outermost = list[_KaiSubgroup]()
    for each in known.values():
        if each.parent and each.parent not in known:
            raise invalid(f"{each.at}.parent", each.parent, "there is no such subgroup")
        (known[each.parent].inside if each.parent else outermost).append(each)
    paths = {each.name: _path(known, each) for each in known.values()}
    name = labels.get(KAI_LABEL) or _DEFAULT
    if name not in known or known[name].inside:
        lowest = ", ".join(each.name for each in known.values() if not each.inside)
        raise NotFound(f"the PodGroup has no subgroup {name} yet; {KAI_LABEL} names one of {lowest}", code=_MISSING)
    required = _required(spec.get("minSubGroup"), "spec.minSubGroup", outermost)
    path = tuple(
        _subgroup(each.name, each.required, by_constraint(each.document.get("topologyConstraint"), at, levels))
        for each in paths[name]
        if (at := f"{each.at}.topologyConstraint")
    )
    return Division(max(1, _members(required, outermost)), required, path)


def _subgroups(spec: Mapping[str, Any]) -> Iterator[_KaiSubgroup]:
    seen = set[str]()
    for at, each in mappings(spec.get("subGroups"), "spec.subGroups"):
        name = named(each.get("name"), f"{at}.name")
        if name in seen:
            raise invalid(f"{at}.name", name, "another subgroup has this name")
        seen.add(name)
        yield _KaiSubgroup(at, name, text(each.get("parent")).lower(), each)


def _path(known: Mapping[str, _KaiSubgroup], lowest: _KaiSubgroup) -> list[_KaiSubgroup]:
    """Return a subgroup with all that it is in, the outermost first."""
    path, outer = [lowest], lowest
    while outer.parent:
        outer = known[outer.parent]
        if any(each is outer for each in path):
            raise invalid(f"{lowest.at}.parent", lowest.parent, "a subgroup cannot be inside itself")
        path.insert(0, outer)
    return path


def _required(stated: object, at: str, inside: list[_KaiSubgroup]) -> int:
    """Return how many subgroups that need members have to start: all of them, unless it is stated."""
    needy = sum(each.required > 0 for each in inside)
    least = len(inside) if stated is None else whole(stated, at, MAX_INT32)
    return max(0, least - (len(inside) - needy))


def _members(required: int, inside: list[_KaiSubgroup]) -> int:
    return sum(sorted(each.members for each in inside if each.required)[:required])


# --- Volcano ---


def of_policies(spec: Mapping[str, Any], labels: Mapping[str, str], levels: Levels) -> Division | None:
    """Return the subgroups of a pod in a group of Volcano; None if the group has no `subGroupPolicy`.

    The first policy counts whose selector matches and whose labels the pod has: the pod is in the subgroup of all that
    have the same values. A pod that no policy matches is in no subgroup.

    Raises:
        NotFound: no HyperNode is of a named tier. InvalidRequest: a policy cannot be parsed.

    """
    policies = list(mappings(spec.get("subGroupPolicy"), "spec.subGroupPolicy"))
    if not policies:
        return None
    path: tuple[Subgroup, ...] = ()
    members = required = 0
    for number, (at, policy) in enumerate(policies):
        size = whole(policy.get("subGroupSize"), f"{at}.subGroupSize", MAX_INT32) or 1
        least = whole(policy.get("minSubGroups"), f"{at}.minSubGroups", MAX_INT32)
        members, required = members + size * least, required + (least > 0)
        values = () if path else _values(policy, at, labels)
        if values:
            near = by_tier(policy.get("networkTopology"), f"{at}.networkTopology", levels)
            outer = Subgroup(text(policy.get("name")) or str(number), least)
            path = (outer, _subgroup(",".join(values), size, near))
    stated = whole(spec.get("minMember"), "spec.minMember", MAX_INT32)
    return Division(max(1, stated, members), required, path)


def _values(policy: Mapping[str, Any], at: str, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of the labels by which a policy divides pods; none if it does not match."""
    selector = read_selector(policy.get("labelSelector"), f"{at}.labelSelector")
    if any(not each.holds(None, labels) for each in selector or ()):
        return ()
    values = tuple(labels.get(text(key), "") for key in sequence(policy.get("matchLabelKeys"), f"{at}.matchLabelKeys"))
    return values if all(values) else ()


def _subgroup(name: str, required: int, near: Near) -> Subgroup:
    return Subgroup(name, required, near.domain, near.within)
