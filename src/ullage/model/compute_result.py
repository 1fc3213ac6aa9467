"""Results about cards and applications: availability, validation of a choice, and changes of the sharing mode."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ullage.model.compute import AppKey, AvailabilityScope, BoundCard, CardKey, ComputeCard, ComputeRequirement, Pick
from ullage.model.quantity import format_bytes


class FitLevel(StrEnum):
    """How well a card fits: for all that would be used, or just for what is required."""

    LIMIT = "limit"
    REQUIRED = "required"


class NodeStatus(StrEnum):
    """Whether a node fits; NOT_AVAILABLE has no usable card of the type, NOT_ENOUGH has too little of it."""

    AVAILABLE = "available"
    NOT_AVAILABLE = "not_available"
    NOT_ENOUGH = "not_enough"


class NoRoom(StrEnum):
    """Why no node fits an application."""

    NO_NODE = "no-matching-node"
    NO_CARD = "no-card-with-enough-vram"
    NO_NODE_WITH_CARDS = "no-node-with-enough-cards"
    NO_CLUSTER = "insufficient-cluster-vram"
    NOT_AVAILABLE = "no-available-node"


@dataclass(frozen=True, slots=True)
class Dimension:
    """One amount of a node: `used` without the application, `available` what is left of `capacity`."""

    resource: str
    required: int
    used: int
    capacity: int
    pressured: bool

    @property
    def available(self) -> int:
        return max(0, self.capacity - self.used)


@dataclass(frozen=True, slots=True)
class NodePressure:
    """The amounts that an application would use of a node, and which of them are too large."""

    node: str
    dimensions: tuple[Dimension, ...]

    @property
    def pressured(self) -> bool:
        return any(each.pressured for each in self.dimensions)


class QuotaScope(NamedTuple):
    """The cards that a quota counts: all of an owner, those of one application, those of one model, or both.

    `path` is the section of the settings that limits them.
    """

    path: str
    owner: str
    app: str = ""
    model: str = ""

    @property
    def text(self) -> str:
        of_app = f" for {self.app}" if self.app else ""
        of_model = f" of {self.model}" if self.model else ""
        return f"the quota of {self.owner}{of_app}{of_model}"


_MOST_NAMES = 3
_KINDS = {"cards": "cards", "vram": "memory of cards", "cpu": "CPUs", "memory": "memory"}


@dataclass(frozen=True, slots=True)
class BindingQuotaUse:
    """One amount of a quota, and the names of the applications that use it."""

    scope: QuotaScope
    dimension: Dimension
    holders: tuple[str, ...] = ()

    @property
    def pressured(self) -> bool:
        """Whether more is asked than is left."""
        return self.dimension.pressured

    @property
    def code(self) -> str:
        """The rejection code, such as `owner-quota:cards` or `app-quota:vram:A100`."""
        name = "app-quota" if self.scope.app else "owner-quota"
        return f"{name}:{self.dimension.resource}{f':{self.scope.model}' if self.scope.model else ''}"

    @property
    def sentence(self) -> str:
        """The quota, its use, what is asked, and what would help."""
        found = self.dimension
        most, used, asked, left = map(self._amount, (found.capacity, found.used, found.required, found.available))
        others = ", ".join(self.holders[:_MOST_NAMES]) + (", ..." if len(self.holders) > _MOST_NAMES else "")
        fixes = [f"release a card of {others}"] if others else []
        fixes += [f"ask for at most {left}"] if found.available else []
        setting = f"kube.bindings.{self.scope.path}.{found.resource}"
        fix = ", ".join([*fixes, f"or have an administrator raise {setting}" if fixes else f"raise {setting}"])
        kind = _KINDS[found.resource]
        return f"{self.scope.text} is {most} ({kind}): {used} used, {asked} more asked; {fix}"

    def _amount(self, amount: int) -> str:
        match self.dimension.resource:
            case "cards":
                return str(amount)
            case "cpu":
                return f"{amount}m"
        return format_bytes(amount)


@dataclass(frozen=True, slots=True)
class ComputeCardRoom:
    """The room of a card for an application; `fit` is None if the card alone is not enough."""

    card: ComputeCard
    available: int
    operable: bool
    fit: FitLevel | None
    bound: tuple[BoundCard, ...]


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """The room of a node for an application."""

    node: str
    accelerator: str
    status: NodeStatus
    cards: tuple[ComputeCardRoom, ...]


@dataclass(frozen=True, slots=True)
class Availability:
    """Where an application could run now; `reason` is None if it can."""

    requirement: ComputeRequirement
    nodes: tuple[NodeRoom, ...]
    reason: NoRoom | None

    @property
    def scope(self) -> AvailabilityScope:
        return self.requirement.scope

    @property
    def schedulable(self) -> bool:
        return self.reason is None


@dataclass(frozen=True, slots=True)
class Validation:
    """Whether a choice of cards is valid; `code` says why not. `quota` is the one that it exceeds."""

    code: str = ""
    pressure: NodePressure | None = None
    quota: BindingQuotaUse | None = None

    @property
    def ok(self) -> bool:
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
class AppDemand:
    """An application to be installed."""

    id: str
    app: AppKey
    requirement: ComputeRequirement


@dataclass(frozen=True, slots=True)
class Preflight:
    """Whether all demands could be installed one after the other, else the first that could not.

    `quota` is the one that it exceeds, if that is the reason.
    """

    failed: str | None = None
    reason: Shortage | None = None
    dimensions: tuple[Dimension, ...] = ()
    quota: BindingQuotaUse | None = None
    picks: tuple[tuple[str, tuple[Pick, ...]], ...] = ()

    @property
    def installable(self) -> bool:
        return self.failed is None


class SwitchStatus(StrEnum):
    """The result of a change of a card's sharing mode."""

    UNCHANGED = "unchanged"
    SWITCHED = "switched"
    BLOCKED = "bound-apps-stop-blocked"


@dataclass(frozen=True, slots=True)
class StoppedApp:
    """An application that has to stop for the change, or cannot: then `reason` says why."""

    app: AppKey
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SwitchReport:
    """The result of a change. If any application is blocked, none is stopped."""

    card: CardKey
    status: SwitchStatus
    stopped: tuple[StoppedApp, ...] = ()
    blocked: tuple[StoppedApp, ...] = ()


class InstallStatus(StrEnum):
    """Whether an application could be installed in one of its modes."""

    INSTALLABLE = "installable"
    INSUFFICIENT = "insufficient-resources"
    NO_NODE = "no-matching-node"


@dataclass(frozen=True, slots=True)
class ModeOption:
    """A mode of an application, and whether it could run in it now."""

    accelerator: str
    status: InstallStatus
    reason: str = ""


class CheckType(StrEnum):
    """The kind of a failed check, by the names of clients."""

    REQUIRED = "computeBindingRequired"
    UNAVAILABLE = "computeBindingUnavailable"
    MODE = "computeModeSelect"
    BLOCKED = "computeDeviceSwitchBlocked"


@dataclass(frozen=True, slots=True)
class FailedCheck:
    """A check that failed, with details that help to choose differently; nothing was changed."""

    type: CheckType
    availability: Availability | None = None
    validation: Validation | None = None
    options: tuple[ModeOption, ...] = ()
    switch: SwitchReport | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """An item that could not be read, or refers to something that no longer exists; others are still processed."""

    item: str
    reason: str
