"""Pods that start together: the PodGroups of four projects, where a cluster has these kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
from ullage.kube.queues.levels import Levels, Near, by_constraint, by_tier
from ullage.kube.queues.subgroups import Division, of_policies, of_subgroups
from ullage.model.claim import GangClaim
from ullage.model.error import InvalidRequest, NotFound
from ullage.wire.document import mapping, mappings, text

_LEAST = 2


@dataclass(frozen=True, slots=True)
class Maker:
    """A project with PodGroups: the versions of its kind, newest first, how a pod names a group, and its minimum size.

    Also the required proximity of members, given the levels that the cluster has, and the subgroups of a group: which
    of them a pod is in, by its labels.
    """

    kinds: tuple[Kind[Object], ...]
    named_by: Callable[[Pod], str | None]
    least: Callable[[Mapping[str, Any]], object]
    near: Callable[[Mapping[str, Any], Levels], Near]
    division: Callable[[Mapping[str, Any], Mapping[str, str], Levels], Division | None] = lambda _s, _p, _l: None


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


def _by_network(spec: Mapping[str, Any], levels: Levels) -> Near:
    return by_tier(spec.get("networkTopology"), "spec.networkTopology", levels)


def _by_constraint(spec: Mapping[str, Any], levels: Levels) -> Near:
    return by_constraint(spec.get("topologyConstraint"), "spec.topologyConstraint", levels)


MAKERS = (
    Maker(NATIVE_POD_GROUPS, _by_field, _gang, _by_topology),
    Maker((POD_GROUPS,), _by_label, _member, _anywhere),
    Maker((VOLCANO_POD_GROUPS,), _by_annotation, _member, _by_network, division=of_policies),
    Maker((KAI_POD_GROUPS,), _by_kai_annotation, _member, _by_constraint, division=of_subgroups),
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
            levels, key = self._levels(), f"{maker.kinds[0].group}/{namespace}/{name}"
            near, parts = maker.near(spec, levels), maker.division(spec, pod.metadata.labels or {}, levels)
            if parts is not None:
                return GangClaim(
                    key,
                    parts.required,
                    parts.required,
                    domain=near.domain,
                    within=near.within,
                    subgroups=parts.path,
                    required_subgroups=parts.required_subgroups,
                )
            least = maker.least(spec)
            if not isinstance(least, int) or least < _LEAST:
                if near == Near():
                    return None
                least = 1  # they start one by one, and near each other
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
