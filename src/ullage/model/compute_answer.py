"""What is said of cards and applications: what there is room for, what is wrong with a choice, what a switch does."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ullage.model.compute import AppKey, BoundCard, CardKey, ComputeCard, ComputeRequirement, Pick, Scope


class FitLevel(StrEnum):
    """How well a card fits: all that would be used, or just what is required."""

    LIMIT = "limit"
    REQUIRED = "required"


class NodeStatus(StrEnum):
    """Whether a node will do; NOT_AVAILABLE has no usable card of the type, NOT_ENOUGH has too little of it."""

    AVAILABLE = "available"
    NOT_AVAILABLE = "not_available"
    NOT_ENOUGH = "not_enough"


class NoRoom(StrEnum):
    """Why an application fits nowhere."""

    NO_NODE = "no-matching-node"
    NO_CARD = "no-card-with-enough-vram"
    NO_NODE_WITH_CARDS = "no-node-with-enough-cards"
    NO_CLUSTER = "insufficient-cluster-vram"
    NOT_AVAILABLE = "no-available-node"


@dataclass(frozen=True, slots=True)
class Dimension:
    """One amount of a node: `used` without what is asked, `available` what is left of `capacity`."""

    resource: str
    required: int
    used: int
    capacity: int
    pressured: bool

    @property
    def available(self) -> int:
        """What is left."""
        return max(0, self.capacity - self.used)


@dataclass(frozen=True, slots=True)
class NodePressure:
    """What of a node an application would use, and what of that is too much."""

    node: str
    dimensions: tuple[Dimension, ...]

    @property
    def pressured(self) -> bool:
        """Whether anything is too much."""
        return any(each.pressured for each in self.dimensions)


@dataclass(frozen=True, slots=True)
class CardRoom:
    """What a card has for an application; `fit` is None where it alone is not enough."""

    card: ComputeCard
    available: int
    operable: bool
    fit: FitLevel | None
    bound: tuple[BoundCard, ...]


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """What a node has for an application."""

    node: str
    accelerator: str
    status: NodeStatus
    cards: tuple[CardRoom, ...]


@dataclass(frozen=True, slots=True)
class Availability:
    """Where an application could run now; `reason` is None where it can."""

    requirement: ComputeRequirement
    nodes: tuple[NodeRoom, ...]
    reason: NoRoom | None

    @property
    def scope(self) -> Scope:
        """Where its cards may be."""
        return self.requirement.scope

    @property
    def schedulable(self) -> bool:
        """Whether there is room."""
        return self.reason is None


@dataclass(frozen=True, slots=True)
class Validation:
    """Whether a choice of cards will do; `code` says why not."""

    code: str = ""
    pressure: NodePressure | None = None

    @property
    def ok(self) -> bool:
        """Whether it will do."""
        return not self.code


class Shortage(StrEnum):
    """Why a series of demands cannot be installed."""

    CLUSTER_CAPACITY = "cluster_capacity"
    CLUSTER_PRESSURE = "cluster_pressure"
    OWNER_QUOTA = "owner_quota"
    K8S_REQUEST = "k8s_request"
    NODE_PRESSURE = "node_pressure"
    UNSCHEDULABLE = "unschedulable"


@dataclass(frozen=True, slots=True)
class Demand:
    """An application that somebody would install."""

    id: str
    app: AppKey
    requirement: ComputeRequirement


@dataclass(frozen=True, slots=True)
class Preflight:
    """Whether all demands could be installed one after the other: if not, which is the first that could not."""

    failed: str | None = None
    reason: Shortage | None = None
    dimensions: tuple[Dimension, ...] = ()
    picks: tuple[tuple[str, tuple[Pick, ...]], ...] = ()

    @property
    def installable(self) -> bool:
        """Whether all could be."""
        return self.failed is None


class SwitchStatus(StrEnum):
    """What comes of switching how a card is shared."""

    UNCHANGED = "unchanged"
    SWITCHED = "switched"
    BLOCKED = "bound-apps-stop-blocked"


@dataclass(frozen=True, slots=True)
class StoppedApp:
    """An application that has to stop for a switch, or cannot: then `reason` says why."""

    app: AppKey
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SwitchReport:
    """What comes of a switch. Where anybody is blocked, nobody is stopped."""

    card: CardKey
    status: SwitchStatus
    stopped: tuple[StoppedApp, ...] = ()
    blocked: tuple[StoppedApp, ...] = ()


class InstallStatus(StrEnum):
    """Whether an application could be installed in one of the ways it can run."""

    INSTALLABLE = "installable"
    INSUFFICIENT = "insufficient-resources"
    NO_NODE = "no-matching-node"


@dataclass(frozen=True, slots=True)
class ModeOption:
    """A way in which an application can run, and whether it could now."""

    accelerator: str
    status: InstallStatus
    reason: str = ""


class CheckType(StrEnum):
    """What kind of check failed, in the words of clients."""

    REQUIRED = "computeBindingRequired"
    UNAVAILABLE = "computeBindingUnavailable"
    MODE = "computeModeSelect"
    BLOCKED = "computeDeviceSwitchBlocked"


@dataclass(frozen=True, slots=True)
class FailedCheck:
    """A check that failed, with what helps to choose better; nothing was changed."""

    type: CheckType
    availability: Availability | None = None
    validation: Validation | None = None
    options: tuple[ModeOption, ...] = ()
    switch: SwitchReport | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """An item that could not be read, or stands for nothing any more; the others are not held up by it."""

    item: str
    reason: str
