"""Pods that start together: the PodGroups of four projects, where a cluster has these kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ullage.kube.client.api import KubeApi
from ullage.kube.client.kinds import (
    KAI_POD_GROUPS,
    KAI_TOPOLOGIES,
    NATIVE_POD_GROUPS,
    POD_GROUPS,
    VOLCANO_POD_GROUPS,
    Kind,
)
from ullage.kube.client.objects import Object, Pod
from ullage.kube.client.served import LateInformer
from ullage.model.claim import GangClaim
from ullage.model.error import InvalidRequest, NotFound, invalid
from ullage.model.quantity import MAX_INT32
from ullage.wire.document import mapping, mappings, text, whole
from ullage.wire.topology.hypernode import MAX_TIER, TIER_LABEL

_LEAST = 2


class Near(NamedTuple):
    """How close members must be, as in `GangClaim`: the preferred levels of labels, and the level that is required."""

    domain: str | None = None
    within: str | None = None


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels above nodes that objects of the cluster describe.

    `tiers` are those of HyperNodes, ascending, and `tier_names` those with a name. `topologies` are those of KAI by
    name: the labels of their levels, the outermost first.
    """

    tiers: Sequence[int] = ()
    tier_names: Mapping[str, int] = field(default_factory=dict)
    topologies: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Maker:
    """A project with PodGroups: the versions of its kind, newest first, how a pod names a group, and its minimum size.

    Also the required proximity of members, given the levels that the cluster has.
    """

    kinds: tuple[Kind[Object], ...]
    named_by: Callable[[Pod], str | None]
    least: Callable[[Mapping[str, Any]], object]
    near: Callable[[Mapping[str, Any], Levels], Near]


def _by_label(pod: Pod) -> str | None:
    return (pod.metadata.labels or {}).get("scheduling.x-k8s.io/pod-group")


def _by_annotation(pod: Pod) -> str | None:
    return (pod.metadata.annotations or {}).get("scheduling.k8s.io/group-name")


def _by_kai_annotation(pod: Pod) -> str | None:
    return (pod.metadata.annotations or {}).get("pod-group-name")


def _by_field(pod: Pod) -> str | None:
    return None if pod.spec.scheduling_group is None else pod.spec.scheduling_group.pod_group_name


def _member(spec: Mapping[str, Any]) -> object:
    return spec.get("minMember")


def _gang(spec: Mapping[str, Any]) -> object:
    """Return the minimum size. Members of a group whose policy is not `gang` start one by one."""
    policy = mapping(spec.get("schedulingPolicy"), "spec.schedulingPolicy")
    return mapping(policy.get("gang"), "spec.schedulingPolicy.gang").get("minCount")


def _anywhere(_spec: Mapping[str, Any], _levels: Levels) -> Near:
    return Near()


def _by_topology(spec: Mapping[str, Any], _levels: Levels) -> Near:
    """Return the proximity of KEP-5732: all members on nodes with the same value of a label."""
    constraints = mapping(spec.get("schedulingConstraints"), "spec.schedulingConstraints").get("topology")
    keys = [text(each.get("key")) for _, each in mappings(constraints, "spec.schedulingConstraints.topology")]
    return Near(keys[0], keys[0]) if keys and keys[0] else Near()


def _by_tier(spec: Mapping[str, Any], levels: Levels) -> Near:
    """Return that of Volcano's `networkTopology`: the lowest tier that fits; `hard` also sets the highest allowed.

    Raises:
        NotFound: no HyperNode is of a tier with that name.

    """
    asked = mapping(spec.get("networkTopology"), "spec.networkTopology")
    if not asked:
        return Near()
    highest = whole(asked.get("highestTierAllowed"), "spec.networkTopology.highestTierAllowed", MAX_TIER)
    if name := text(asked.get("highestTierName")):
        if name not in levels.tier_names:
            raise NotFound(f"no HyperNode is of a tier with the name {name} yet", code="topology-missing")
        highest = levels.tier_names[name]
    tiers = [f"{TIER_LABEL}{tier}" for tier in reversed(levels.tiers) if not highest or tier <= highest]
    hard = text(asked.get("mode")) != "soft" and highest
    within = f"{TIER_LABEL}{highest}" if hard else None
    return Near(",".join(tiers) or within, within)


def _of_policies(spec: Mapping[str, Any]) -> object:
    """Return the minimum size of a group of Volcano: its own, or that of its subgroups together if that is more.

    Raises:
        InvalidRequest: subgroups must be near each other in ways of their own.

    """
    least, subgroups = spec.get("minMember"), 0
    for at, each in mappings(spec.get("subGroupPolicy"), "spec.subGroupPolicy"):
        if asked := each.get("networkTopology"):
            fix = "levels of a subgroup are not supported; name them in spec.networkTopology"
            raise invalid(f"{at}.networkTopology", asked, fix)
        size = whole(each.get("subGroupSize"), f"{at}.subGroupSize", MAX_INT32) or 1
        subgroups += size * whole(each.get("minSubGroups"), f"{at}.minSubGroups", MAX_INT32)
    return max(least, subgroups) if isinstance(least, int) else subgroups or least


def _of_subgroups(spec: Mapping[str, Any]) -> object:
    """Return the minimum size of a group of KAI: its own, else the sum of those of its subgroups without others below.

    Raises:
        InvalidRequest: subgroups must be near each other in ways of their own.

    """
    subgroups = [each for _, each in mappings(spec.get("subGroups"), "spec.subGroups")]
    for number, each in enumerate(subgroups):
        if asked := each.get("topologyConstraint"):
            fix = "levels of a subgroup are not supported; name them in spec.topologyConstraint"
            raise invalid(f"spec.subGroups[{number}].topologyConstraint", asked, fix)
    parents = {text(each.get("parent")) for each in subgroups}
    lowest = (each for each in subgroups if text(each.get("name")) not in parents)
    least = spec.get("minMember")
    return least if least is not None else sum(whole(each.get("minMember"), "minMember", MAX_INT32) for each in lowest)


def _by_kai(spec: Mapping[str, Any], levels: Levels) -> Near:
    """Return that of KAI's `topologyConstraint`: from the preferred level outwards, up to the required one.

    Raises:
        NotFound: the topology does not exist. InvalidRequest: it has no such level, or they are in the wrong order.

    """
    field_name = "spec.topologyConstraint"
    asked = mapping(spec.get("topologyConstraint"), field_name)
    required, preferred = text(asked.get("requiredTopologyLevel")), text(asked.get("preferredTopologyLevel"))
    if not (required or preferred):
        return Near()
    name = text(asked.get("topology"))
    if name not in levels.topologies:
        raise NotFound(f"Topology {name} does not exist yet", code="topology-missing")
    known = list(levels.topologies[name])
    for key, label in (("requiredTopologyLevel", required), ("preferredTopologyLevel", preferred)):
        if label and label not in known:
            raise invalid(f"{field_name}.{key}", label, f"the levels of {name} are {', '.join(known)}")
    first = known.index(required) if required else 0
    last = known.index(preferred) if preferred else first
    if last < first:
        fix = f"it is above {required}, which is required; name a level below it"
        raise invalid(f"{field_name}.preferredTopologyLevel", preferred, fix)
    return Near(",".join(known[first : last + 1]), required or None)


MAKERS = (
    Maker(NATIVE_POD_GROUPS, _by_field, _gang, _by_topology),
    Maker((POD_GROUPS,), _by_label, _member, _anywhere),
    Maker((VOLCANO_POD_GROUPS,), _by_annotation, _of_policies, _by_tier),
    Maker((KAI_POD_GROUPS,), _by_kai_annotation, _of_subgroups, _by_kai),
)


class PodGroups:
    """Follows the kinds that exist: `informers`."""

    def __init__(
        self,
        api: KubeApi,
        *,
        tiers: Callable[[], Sequence[int]] = tuple,
        tier_names: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._tiers, self._tier_names = tiers, tier_names
        self._subscribers: list[Callable[[], None]] = []
        self._of = {maker: LateInformer(api, maker.kinds, lambda _news: self.look_again()) for maker in MAKERS}
        self._topologies = LateInformer(api, (KAI_TOPOLOGIES,), lambda _news: self.look_again())

    @property
    def informers(self) -> Iterable[LateInformer[Object]]:
        return (*self._of.values(), self._topologies)

    @property
    def ready(self) -> bool:
        """Whether it is known which kinds exist, and all their groups have been listed."""
        return all(each.ready for each in self.informers)

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` after every change of a group."""
        self._subscribers.append(changed)

    def look_again(self) -> None:
        """Evaluate the groups again: their requirements may have another meaning by now."""
        for changed in self._subscribers:
            changed()

    def gang_of(self, pod: Pod) -> GangClaim | None:
        """Return the group of a pod; None if it has no group, or one whose members need not start together.

        Raises:
            NotFound: it names a group that does not exist. InvalidRequest: the group cannot be parsed.

        """
        for maker, late in self._of.items():
            informer, name = late.informer, maker.named_by(pod)
            if informer is None or not name:
                continue
            namespace = pod.metadata.namespace
            found = informer.objects.get((namespace, name))
            if found is None:
                raise NotFound(f"PodGroup {namespace}/{name} does not exist yet", code="pod-group-missing")
            spec = mapping(found.document.get("spec"), "spec")
            least, near = maker.least(spec), maker.near(spec, self._levels())
            if not isinstance(least, int) or least < _LEAST:
                return None
            key = f"{maker.kinds[0].group}/{namespace}/{name}"
            return GangClaim(key, least, least, domain=near.domain, within=near.within)
        return None

    def _levels(self) -> Levels:
        late = self._topologies.informer
        there = () if late is None else late.objects.values()
        return Levels(self._tiers(), self._tier_names(), {found.metadata.name: _levels_of(found) for found in there})

    @staticmethod
    def named_by(pod: Pod) -> bool:
        """Return whether a pod names a group, of any kind."""
        return any(maker.named_by(pod) for maker in MAKERS)


def _levels_of(topology: Object) -> Sequence[str]:
    """Return the labels of the levels of a topology of KAI, the outermost first; none if they cannot be read."""
    try:
        spec = mapping(topology.document.get("spec"), "spec")
        return [text(each.get("nodeLabel")) for _, each in mappings(spec.get("levels"), "spec.levels")]
    except InvalidRequest:
        return []
