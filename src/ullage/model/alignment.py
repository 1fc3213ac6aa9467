"""The alignment that a request asks for: how strictly, and per container."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from ullage.model.choice import parse_choice
from ullage.model.error import invalid
from ullage.model.quantity import MAX_INT32, check_amount
from ullage.model.topology import CARD, CPU, MAX_ZONE_BYTES, MAX_ZONES, MEMORY, ZonePolicy

MAX_CONTAINERS = 64
"""The most aligned containers of one request; a pod with more cannot request cards."""

MAX_PAIRS = 64
"""The most pairs of one request."""

MAX_RESOURCES = 64
"""The most kinds of devices and sizes of huge pages that the containers of one request are aligned by."""

SEPARATOR = "~"
"""The separator of the two resources of a pair."""

_RESOURCE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,250}[A-Za-z0-9])?", re.ASCII)
_SIDES_OF_A_PAIR = 2
_SIDES = {CARD: CARD, CPU: CPU, MEMORY: MEMORY, "mem": MEMORY}
_PAIR_FORM = "a pair is of gpu and something else, such as gpu~nic=required, gpu~nic=switch or gpu~cpu=preferred"


class Level(StrEnum):
    """How strictly cards are placed near a resource; `switch`: required, and each behind one PCIe switch with some."""

    PREFERRED = "preferred"
    REQUIRED = "required"
    SWITCH = "switch"


class LinkDemand(StrEnum):
    """What a request asks of the links between its cards.

    `best`: the cards that are connected best; of one card, the one that is connected worst. `island`: cards of one
    island, joined by NVLink or behind one PCIe switch, or none.
    """

    BEST = "best"
    ISLAND = "island"


@dataclass(frozen=True, slots=True)
class Pair:
    """A pair of cards and a resource in the same zones: `cpu`, `memory`, or a device by its name.

    The amount that the request has of the resource lies in the zones of the cards. If the request has none of it, its
    cards lie only in zones with such a resource, free or not; with the level `switch` the same holds for PCIe switches.
    A `preferred` pair is ignored where it cannot be satisfied.

    Raises:
        InvalidRequest: the resource is not valid, or it is `gpu` again.

    """

    resource: str
    level: Level

    def __post_init__(self) -> None:
        if self.resource == CARD or not _RESOURCE.fullmatch(self.resource):
            raise invalid("pair", f"{CARD}{SEPARATOR}{self.resource}", _PAIR_FORM)

    def __str__(self) -> str:
        return f"{CARD}{SEPARATOR}{self.resource}={self.level}"


class AlignmentStage(StrEnum):
    """When a container of a pod runs: init containers one by one before the others, sidecars from their start on."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True, slots=True)
class ContainerNeeds:
    """The resources of one container that are aligned: exclusive CPUs, and devices by resource (`gpu` for cards).

    `memory_bytes` is the memory that must come from its zones; `hugepages` is the same for huge pages, by page size,
    all in bytes. Resources that are not aligned (half a CPU, the memory of a burstable pod) are left out.

    Raises:
        InvalidRequest: an amount is negative or too large (`amount-out-of-range`).

    """

    name: str = ""
    stage: AlignmentStage = AlignmentStage.APP
    cpus: int = 0
    memory_bytes: int = 0
    devices: tuple[tuple[str, int], ...] = ()
    hugepages: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        own = f"containers.{self.name}" if self.name else "containers"
        for name, count in (("cpus", self.cpus), *self.devices):
            check_amount(count, f"{own}.{name}", MAX_INT32)
        pages = ((f"hugepages.{size}", amount) for size, amount in self.hugepages)
        for name, amount in (("memory_bytes", self.memory_bytes), *pages):
            check_amount(amount, f"{own}.{name}", MAX_ZONES * MAX_ZONE_BYTES)


@dataclass(frozen=True, slots=True)
class Alignment:
    """How strictly a request is aligned, by the rules of the kubelet's topology manager.

    Without a `policy` that of the node applies; with `pairs` it is at least best effort. Without `containers`
    the request is aligned as a single container that has all of its cards, and its CPUs if it asks for a whole
    number of them. `pairs`, in the order of their resources, bind each container that has cards. `links` is what it
    asks of the links between its cards.

    Raises:
        InvalidRequest: there are too many containers, resources or pairs, a resource is in two pairs, or the policy
            leaves no pairs.

    """

    policy: ZonePolicy | None = None
    containers: tuple[ContainerNeeds, ...] = ()
    pairs: tuple[Pair, ...] = ()
    links: LinkDemand | None = None

    def __post_init__(self) -> None:
        names = [pair.resource for pair in self.pairs]
        if names != sorted(set(names)):
            raise invalid("pairs", ",".join(map(str, self.pairs)), "name each resource once, in order")
        if len(names) > MAX_PAIRS:
            raise invalid("pairs", len(names), f"at most {MAX_PAIRS} pairs can be requested")
        if self.pairs and self.policy is ZonePolicy.NONE:
            raise invalid("numa", "none", f"{self.pairs[0]} aligns the cards; leave numa out, or request best-effort")
        if len(self.containers) > MAX_CONTAINERS:
            raise invalid("containers", len(self.containers), f"align at most {MAX_CONTAINERS} of them")
        resources = {name for each in self.containers for name, _ in (*each.devices, *each.hugepages)}
        if len(resources) > MAX_RESOURCES:
            fix = f"containers are aligned by at most {MAX_RESOURCES} kinds of devices and huge pages"
            raise invalid("containers.resources", len(resources), fix)

    @property
    def effective_policy(self) -> ZonePolicy | None:
        """The policy of the request; pairs alone imply best effort. None: that of the node."""
        return ZonePolicy.BEST_EFFORT if self.pairs and self.policy is None else self.policy

    @property
    def required(self) -> bool:
        """Whether the request is refused where it cannot be aligned."""
        one_island = self.links is LinkDemand.ISLAND
        return bool(self.policy and self.policy.required) or self.has_required_pair or one_island

    @property
    def has_required_pair(self) -> bool:
        return any(pair.level is not Level.PREFERRED for pair in self.pairs)


DEFAULT_ALIGNMENT = Alignment()


def read_pair(key: str, level: str) -> Pair:
    """Return the pair of a key such as `gpu~nic`, in either order."""
    names = [_SIDES.get(side.strip().lower(), side.strip()) for side in key.split(SEPARATOR)]
    if CARD not in names or len(names) != _SIDES_OF_A_PAIR:
        raise invalid("pair", key, _PAIR_FORM)
    names.remove(CARD)
    (resource,) = names
    return Pair(resource, parse_choice(Level, level, key))
