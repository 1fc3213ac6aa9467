"""The annotations and resources with which a pod can request cards, and its request in any of these dialects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from ullage.model.error import invalid, invalid_annotation
from ullage.model.family_ids import MOST_FAMILIES
from ullage.wire.document import Document, mapping, section
from ullage.wire.hami.request import read_hami
from ullage.wire.hami.resource_quota import quota_name
from ullage.wire.kubernetes_quantity import is_nothing
from ullage.wire.pod.alignment import VOLCANO, VOLCANO_POLICY
from ullage.wire.pod.card_topology import TOPOLOGY_KEYS
from ullage.wire.pod.compose import compose_request
from ullage.wire.pod.containers import containers_of
from ullage.wire.pod.families import of_several_families, without_resources
from ullage.wire.pod.gate import QUEUE
from ullage.wire.pod.keys import DOMAIN
from ullage.wire.pod.request import PLAIN_DEFAULTS, Dialect, PodDefaults, PodRequest
from ullage.wire.vendors.container_request import FamilyRequest
from ullage.wire.vendors.containers import container_requests
from ullage.wire.vendors.family import Family
from ullage.wire.vendors.profiles import SliceProfile
from ullage.wire.vendors.shipped import FAMILIES, NATIVE_RESOURCES, SLICES
from ullage.wire.vendors.slice_resources import slice_resource

TENSOR_FUSION = "tensor-fusion.ai"

CARD_KEYS = (
    *("gpupool", "tflops-request", "tflops-limit", "vram-request", "vram-limit", "compute-percent-request"),
    *("compute-percent-limit", "gpu-count", "gpu-indices", "vendor", "gpu-model", "isolation", "dedicated-gpu"),
    "container-gpu-count",
)
"""Annotations under our domain with which a pod requests cards, without those that are written at bind."""

REQUEST_ANNOTATIONS = (
    *CARD_KEYS,
    *("qos", "eviction-protection", "workload", "partition-id", "numa-policy", "numa-pairs"),
    *TOPOLOGY_KEYS,
    *("gang-enabled", "gang-group-key", "gang-min-members", "gang-required-members", "gang-desired-members"),
    *("gang-timeout", "gang-domain", "gang-within"),
    *("gang-subgroup", "gang-subgroup-members", "gang-subgroup-domain", "gang-subgroup-within"),
)
"""Annotations of a request, which the author of a pod may write."""

LABELS = (QUEUE, "workload")
"""Labels under our domain that are read."""

_POOL = "gpupool"
"""The annotation of the pool: it requests no cards, and is compatible with every dialect."""


@dataclass(frozen=True)
class PodSettings:
    """How pods are read. `families` are those whose resources and annotations are known.

    With `align_all` pods without cards are aligned to zones that do not ask for a policy.
    """

    domain: str = DOMAIN
    families: tuple[Family, ...] = FAMILIES
    defaults: PodDefaults = PLAIN_DEFAULTS
    align_all: bool = False

    @cached_property
    def annotations(self) -> frozenset[str]:
        """The keys of all annotations that a request may have, in every dialect."""
        own = (f"{domain}/{name}" for domain in (self.domain, TENSOR_FUSION) for name in REQUEST_ANNOTATIONS)
        return frozenset((*own, *self.families_by_annotation, f"{VOLCANO}/{VOLCANO_POLICY}"))

    @cached_property
    def labels(self) -> frozenset[str]:
        """The keys of all labels that a request may have."""
        return frozenset(f"{domain}/{name}" for domain in (self.domain, TENSOR_FUSION) for name in LABELS)

    @cached_property
    def card_annotations(self) -> Mapping[str, Dialect]:
        """The annotations under our domain that request cards, and those of the same names of another scheduler."""
        whose = {TENSOR_FUSION: Dialect.TENSOR_FUSION, self.domain: Dialect.OURS}
        return {f"{each}/{name}": dialect for each, dialect in whose.items() for name in CARD_KEYS}

    @cached_property
    def families_by_annotation(self) -> Mapping[str, tuple[Family, ...]]:
        """The families that read each annotation of a request."""
        found: dict[str, tuple[Family, ...]] = {}
        for family in self.families:
            for key in family.annotation_keys():
                found[key] = (*found.get(key, ()), family)
        return found

    @cached_property
    def parts_of_cards(self) -> Mapping[str, Family]:
        """The resources that are parts of cards, with their family."""
        return {name: family for family in self.families for name in family.amounts}

    @cached_property
    def counts_of_cards(self) -> Mapping[str, Family | None]:
        """The resources that count cards, with their family."""
        return {**dict.fromkeys(NATIVE_RESOURCES), **{family.resources.count: family for family in self.families}}

    def is_card_resource(self, name: str) -> bool:
        """Return whether a resource of a container requests cards, parts of cards, or slices that exist already."""
        return name in self.parts_of_cards or name in self.counts_of_cards or slice_resource(name) is not None


PLAIN_SETTINGS = PodSettings()


@dataclass(frozen=True, slots=True)
class _Found:
    """A key of a pod that belongs to a dialect, with the path of its field; `family` is that of HAMi's keys."""

    dialect: Dialect
    name: str
    field: str
    value: object
    family: Family | None = None


@dataclass(frozen=True, slots=True)
class PodReader:
    """Read pods with one set of settings.

    All parts of a process share one reader, so that they read every pod the same way.
    """

    settings: PodSettings = PLAIN_SETTINGS

    def __call__(
        self, pod: Document, *, profiles: Sequence[SliceProfile] = (), replicas: int | None = None, now: float = 0.0
    ) -> PodRequest | None:
        """Return the request of a pod; None if it requests no card.

        See `read_hami` for `profiles`, `compose_request` for `replicas` and `now`.
        """
        resources = list(_resources(pod, self.settings))
        if len(by_vendor := _by_vendor(resources)) > 1:
            _check_separable(pod, self.settings, by_vendor)
            names = [frozenset(each.name for each in keys) for keys in by_vendor.values()]
            alone = (without_resources(pod, frozenset().union(*names) - own) for own in names)
            return of_several_families(self(each, profiles=profiles, replicas=replicas, now=now) for each in alone)
        found = self._read(pod, resources, profiles, replicas=replicas, now=now)
        if found is None or len(found.requirement.cards.vendors) != 1:
            return found
        (vendor,) = found.requirement.cards.vendors
        maker = next((each.maker for each in SLICES if each.vendor == vendor), vendor)
        name = quota_name(found.claim.namespace, maker)
        quota = "" if name == found.claim.namespace else name
        return replace(found, claim=replace(found.claim, quota=quota)) if quota else found

    def _read(
        self,
        pod: Document,
        resources: list[_Found],
        profiles: Sequence[SliceProfile],
        *,
        replicas: int | None,
        now: float,
    ) -> PodRequest | None:
        """Return the request of a pod that requests cards of one family."""
        settings, found = self.settings, _dialect(pod, self.settings, resources)
        if found is None:
            return None
        _check_values(pod, settings)
        if found.family is not None:
            return read_hami(
                pod,
                found.family,
                settings.domain,
                profiles=profiles,
                defaults=settings.defaults,
                replicas=replicas,
                now=now,
            )
        domain = TENSOR_FUSION if found.dialect is Dialect.TENSOR_FUSION else settings.domain
        return compose_request(
            pod,
            domain,
            defaults=settings.defaults,
            replicas=replicas,
            now=now,
            dialect=found.dialect,
            devices=_counted(pod, resources),
        )


def _counted(pod: Document, resources: Sequence[_Found]) -> FamilyRequest | None:
    """Return the request of the containers to a device plugin that follows HAMi's annotations.

    It is used for pods of other dialects.
    """
    families = dict.fromkeys(each.family for each in resources if each.family is not None)
    asked = (FamilyRequest(family, container_requests(pod, family)) for family in families)
    return next((each for each in asked if each.counted), None)


read_pod = PodReader()
"""The reader of a cluster with the default configuration."""


def _dialect(pod: Document, settings: PodSettings, resources: list[_Found]) -> _Found | None:
    """Return the first key of a dialect in a pod, after a check that all other keys are compatible with it.

    Resources of device plugins are compatible with our annotations, and belong to HAMi as well.
    """
    ours = list(_annotated(pod, settings))
    asking = _asking(ours, settings)
    found = [*asking.values(), *_of_hami(pod, settings, resources, requested=bool(asking))]
    for other in found[1:]:
        fix = f"{found[0].field} is of another dialect ({found[0].dialect}, not {other.dialect}); keep one of the two"
        raise invalid(other.field, other.value, fix)
    plain = [each for each in resources if each.dialect is Dialect.PLAIN]
    by_rule = (each for each in plain if each.family and (each.family.has_rules or each.name not in NATIVE_RESOURCES))
    return next(chain(found, by_rule, (replace(each, family=None) for each in plain), ours), None)


def select_keys(texts: Mapping[str, str] | None, keys: frozenset[str]) -> dict[str, str]:
    """Return the annotations or labels with these keys."""
    return {key: value for key, value in (texts or {}).items() if key in keys}


def changed_keys(before: Mapping[str, object], after: Mapping[str, object], keys: Iterable[str]) -> list[str]:
    """Return those keys whose values differ, in order."""
    return sorted(key for key in keys if before.get(key) != after.get(key))


def _check_values(pod: Document, settings: PodSettings) -> None:
    """Refuse a request with an empty value in any dialect: it would request nothing, or a whole card."""
    for key, value in _annotations(pod).items():
        if isinstance(value, str) and not value.strip() and key in settings.annotations:
            raise invalid_annotation(key, value, "it is empty; write a value, or leave it out")


def _asking(ours: Sequence[_Found], settings: PodSettings) -> dict[Dialect, _Found]:
    """Return the first of our annotations that requests cards, by dialect."""
    return {each.dialect: each for each in reversed(ours) if each.name != f"{settings.domain}/{_POOL}"}


def _by_vendor(resources: Sequence[_Found]) -> dict[str, list[_Found]]:
    """Return the resources of each vendor of cards, in the order of the containers; slices by their profile."""
    found: dict[str, list[_Found]] = {}
    for each in resources:
        found.setdefault(_vendor_of(each), []).append(each)
    return found


def _check_separable(pod: Document, settings: PodSettings, by_vendor: Mapping[str, list[_Found]]) -> None:
    """Refuse a pod with cards of several families whose request cannot be divided among them."""
    (one, (first, *_)), (other, (second, *_)), *_ = by_vendor.items()
    both = f"{first.field} requests cards of {one}, this cards of {other}"
    if len(by_vendor) > MOST_FAMILIES:
        fix = f"{both}; a pod has cards of at most {MOST_FAMILIES} families"
        raise invalid(second.field, second.value, fix)
    if any(slice_resource(each.name) is not None for keys in by_vendor.values() for each in keys):
        rule = "a pod with slices that exist already has slices of one profile, and no other cards"
        raise invalid(second.field, second.value, f"{both}; {rule}")
    for ours in _asking(list(_annotated(pod, settings)), settings).values():
        fix = f"the containers request cards of {one} and {other}: state amounts in their limits, and leave this out"
        raise invalid(ours.field, ours.value, fix)


def _vendor_of(key: _Found) -> str:
    """Return the vendor of the cards that a resource requests; of slices, the resource of their profile."""
    return NATIVE_RESOURCES.get(key.name, key.name) if key.family is None else key.family.name


def _annotated(pod: Document, settings: PodSettings) -> Iterator[_Found]:
    """Yield our annotations, and those of the scheduler whose annotations have the same names."""
    annotations = _annotations(pod)
    for key, dialect in settings.card_annotations.items():
        if key in annotations:
            yield _Found(dialect, key, f"{_ANNOTATIONS}.{key}", annotations[key])


def _resources(pod: Document, settings: PodSettings) -> Iterator[_Found]:
    """Yield the resources of containers that are cards, or parts of cards."""
    parts, counts = settings.parts_of_cards, settings.counts_of_cards
    for _, path, container in containers_of(section(pod, "spec")):
        resources = mapping(container.get("resources"), f"{path}.resources")
        for kind in ("limits", "requests"):
            for name, value in mapping(resources.get(kind), f"{path}.resources.{kind}").items():
                field = f"{path}.resources.{kind}.{name}"
                if name in parts:
                    yield _Found(Dialect.HAMI, name, field, value, family=parts[name])
                elif name in counts and not is_nothing(value):
                    yield _Found(Dialect.PLAIN, name, field, value, family=counts[name])
                elif slice_resource(name) is not None and not is_nothing(value):
                    yield _Found(Dialect.PLAIN, name, field, value)


def _of_hami(pod: Document, settings: PodSettings, resources: list[_Found], *, requested: bool) -> Iterator[_Found]:
    """Yield one key per family that only HAMi knows.

    Annotations of HAMi count only where the pod requests cards at all: those of the families whose resources it has,
    and those of any family if the pod has none.
    """
    found: dict[Family | None, _Found] = {}
    for each in resources:
        if each.dialect is Dialect.HAMI:
            found.setdefault(each.family, each)
    there = dict.fromkeys(each.family for each in resources if each.family is not None)
    if not there and requested:
        there = dict.fromkeys(settings.families)
    for key, value in _annotations(pod).items() if there else ():
        family = next((each for each in settings.families_by_annotation.get(key, ()) if each in there), None)
        if family is not None:
            found.setdefault(family, _Found(Dialect.HAMI, key, f"{_ANNOTATIONS}.{key}", value, family=family))
    yield from found.values()


def _annotations(pod: Document) -> Document:
    return section(pod, "metadata", "annotations")


_ANNOTATIONS = "metadata.annotations"
