"""Cards to which applications are bound: the cards, the bindings, and the requirements of applications."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from ullage.model.binding import BindingState, ShareMode

CPU = "cpu"
NVIDIA = "nvidia"


class CardKey(NamedTuple):
    """A card by its node and its id there."""

    node: str
    device: str


class AppKey(NamedTuple):
    """The identity of an application: all three fields, never the name alone."""

    name: str
    owner: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class HostRoom:
    """Amounts of a node other than those of cards."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0

    def __add__(self, other: HostRoom) -> HostRoom:
        return HostRoom(
            self.cpu_milli + other.cpu_milli,
            self.memory_bytes + other.memory_bytes,
            self.disk_bytes + other.disk_bytes,
        )


EVERY_OWNER = "*"
"""In place of an owner: the quota of each owner without an own one."""


EVERY_APP = "*"
"""In place of an application: the quota of each application without an own one."""


@dataclass(frozen=True, slots=True)
class CardQuota:
    """The most cards, and bytes of their memory; None is no limit, and 0 nothing at all.

    `vram_bytes` counts the memory caps on a card whose memory is divided, and all of any other card.
    """

    cards: int | None = None
    vram_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class AppQuota(CardQuota):
    """The quota of one application, and the quotas of its cards by the start of the name of their model."""

    models: Mapping[str, CardQuota] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OwnerQuota(CardQuota):
    """The most that the applications of an owner may have together. `cpu_milli` and `memory_bytes` are of nodes.

    `models` has the quotas of cards by the start of the name of their model, `apps` those of applications by name.
    """

    cpu_milli: int | None = None
    memory_bytes: int | None = None
    models: Mapping[str, CardQuota] = field(default_factory=dict)
    apps: Mapping[str, AppQuota] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ComputeCard:
    """A card, or what a node with unified memory reports for its cards. `share` is its sharing mode.

    `healthy` is reported by its driver, `cordoned` set by an operator; both keep new work away, and so it is if the
    card is `partitioned`. `represents` are the cards of the node for which it is shown.
    """

    node: str
    id: str
    accelerator: str
    memory_bytes: int
    share: ShareMode
    model: str = ""
    index: int = 0
    zone: int = 0
    healthy: bool = True
    cordoned: bool = False
    represents: tuple[str, ...] = ()
    partitioned: bool = False

    @property
    def uuids(self) -> tuple[str, ...]:
        """The cards that are held for it."""
        return self.represents or (self.id,)

    @property
    def key(self) -> CardKey:
        return CardKey(self.node, self.id)


@dataclass(frozen=True, slots=True)
class ComputeNode:
    """A node with its cards. `used` is measured, `requested` by its pods; 0 of `capacity` is not known.

    A node that is `cordoned` is not `ready`.
    """

    name: str
    cards: tuple[ComputeCard, ...] = ()
    capacity: HostRoom = HostRoom()
    used: HostRoom = HostRoom()
    requested: HostRoom = HostRoom()
    ready: bool = True
    cordoned: bool = False

    @property
    def accelerators(self) -> tuple[str, ...]:
        return tuple(sorted({card.accelerator for card in self.cards}))


@dataclass(frozen=True, slots=True)
class ComputeRequirement:
    """The requirement of an application in one of its modes. A limit of 0 equals the required amount.

    Bytes of cards count over all cards that it gets. Several cards, or nodes, are for nvidia only.
    """

    accelerator: str
    gpu_bytes: int = 0
    gpu_limit_bytes: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    memory_limit_bytes: int = 0
    disk_bytes: int = 0
    several_cards: bool = False
    several_nodes: bool = False

    @property
    def needs_card(self) -> bool:
        return self.accelerator not in ("", CPU)

    @property
    def limit_bytes(self) -> int:
        """The bytes of cards that it would use."""
        return max(self.gpu_limit_bytes, self.gpu_bytes)

    @property
    def scope(self) -> AvailabilityScope:
        if self.accelerator == NVIDIA and self.several_nodes:
            return AvailabilityScope.NODES
        return AvailabilityScope.CARDS if self.accelerator == NVIDIA and self.several_cards else AvailabilityScope.CARD

    def room(self, *, install: bool = False) -> HostRoom:
        """Return what it takes of a node; disk counts only during installation."""
        return HostRoom(self.cpu_milli, self.memory_bytes, self.disk_bytes if install else 0)


class AvailabilityScope(StrEnum):
    """Where the cards of an application may be."""

    CARD = "card"
    CARDS = "single-node-cards"
    NODES = "cross-node-cards"


@dataclass(frozen=True, slots=True)
class Pick:
    """A card that is chosen for an application; `memory_bytes` counts where memory is divided, else it is 0."""

    node: str
    device: str
    memory_bytes: int = 0

    @property
    def key(self) -> CardKey:
        return CardKey(self.node, self.device)


@dataclass(frozen=True, slots=True)
class BoundCard:
    """The binding of an application to a card: one row of the ledger.

    `id` names the row permanently; a process on the card reports the row by which it runs. A draining row belongs to
    an application that was asked to leave: it counts until no process runs by it. `share` is the sharing mode of the
    card when the row was made, `by` who requested it, and `at` when, in seconds since 1970.
    """

    id: str
    app: AppKey
    card: CardKey
    accelerator: str
    share: ShareMode
    memory_bytes: int = 0
    app_id: str = ""
    state: BindingState = BindingState.BOUND
    spec: ComputeRequirement | None = None
    by: str = field(default="", compare=False)
    at: float = field(default=0.0, compare=False)

    @property
    def draining(self) -> bool:
        return self.state is BindingState.DRAINING


@dataclass(frozen=True, slots=True)
class CardUser:
    """A pod that holds cards of a node: `held` maps the uuid of each card to the bytes held of it, None for all."""

    app: AppKey
    node: str
    held: Mapping[str, int | None]


class AppState(StrEnum):
    """The state of an application, by the names of its controller."""

    INSTALLING = "installing"
    INITIALIZING = "initializing"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    RESUMING = "resuming"
    UPGRADING = "upgrading"
    APPLYING_ENV = "applyingEnv"
    UNINSTALLING = "uninstalling"
    UNINSTALLED = "uninstalled"
    INSTALL_FAILED = "installFailed"
    STOP_FAILED = "stopFailed"
    RESUME_FAILED = "resumeFailed"
    UPGRADE_FAILED = "upgradeFailed"
    APPLY_ENV_FAILED = "applyEnvFailed"
    UNINSTALL_FAILED = "uninstallFailed"


@dataclass(frozen=True, slots=True)
class HostedApp:
    """An application of an owner. `requirements` are the modes in which it can run, `accelerator` the chosen one.

    A client of a shared server has no requirements of its own. `state` is text, as controllers have states that are
    not known here. `unreadable` says what about its requirements cannot be read, by field: no decision is made for
    such an application. With `one_card_per_pod` each of its pods takes one of the bound cards, not all of them.
    """

    key: AppKey
    state: str = AppState.RUNNING
    id: str = ""
    requirements: tuple[ComputeRequirement, ...] = ()
    accelerator: str = ""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    shared_server: bool = False
    unreadable: str = ""
    one_card_per_pod: bool = False

    @property
    def requirement(self) -> ComputeRequirement | None:
        """The requirement of the chosen mode, or of its only mode; None where none was chosen, or it has none."""
        chosen = [each for each in self.requirements if each.accelerator == self.accelerator]
        if chosen:
            return chosen[0]
        return self.requirements[0] if len(self.requirements) == 1 else None
