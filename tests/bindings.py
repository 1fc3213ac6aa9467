"""Cards and applications for tests of bindings, and a port that keeps everything in memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ullage.binding.rows import Ledger, applied
from ullage.binding.view import BindingInventory, BindingView
from ullage.model.binding import BindingState, ShareMode
from ullage.model.compute import (
    AppKey,
    AppState,
    BoundCard,
    CardKey,
    ComputeCard,
    ComputeNode,
    ComputeRequirement,
    HostedApp,
    HostRoom,
)
from ullage.model.error import VersionChanged
from ullage.service.bindings_port import ClusterFacts

MIB = 2**20
GIB = 2**30
ALONE, SLICED, TURNS = ShareMode.EXCLUSIVE, ShareMode.MEMORY_SLICE, ShareMode.TIME_SLICE
IDLE = HostRoom()
ROOMY = HostRoom(64_000, 256 * GIB, 1000 * GIB)


def a_card(node="n1", device="d1", mib=16_000, share=TURNS, accelerator="nvidia", **facts):
    return ComputeCard(node, device, accelerator, mib * MIB, share, model="RTX", **facts)


def a_node(*cards, name=None, used=IDLE, **facts):
    return ComputeNode(name or cards[0].node, cards, **({"capacity": ROOMY, "used": used} | facts))


def ask(mib=8_000, limit=0, accelerator="nvidia", **facts):
    return ComputeRequirement(accelerator, mib * MIB, limit * MIB, **({"cpu_milli": 1000, "memory_bytes": GIB} | facts))


def an_app(name="comfyui", owner="alice", *requirements, state=AppState.RUNNING, **facts):
    return HostedApp(AppKey(name, owner, f"{name}-{owner}"), state, f"id-{name}", requirements or (ask(),), **facts)


def a_row(card, app="comfyui", owner="alice", mib=0, share=None, draining=False, row_id=None, spec=None):
    state = BindingState.DRAINING if draining else BindingState.BOUND
    key = AppKey(app, owner, f"{app}-{owner}")
    return BoundCard(
        row_id or f"{app}-{owner}-{card.id}-{state}",
        key,
        card.key,
        card.accelerator,
        share or card.share,
        mib * MIB,
        f"id-{app}",
        state,
        spec,
    )


def a_view(nodes, rows=(), **facts):
    return BindingView(BindingInventory(nodes), rows, **facts)


def overfull(view: BindingView) -> list[CardKey]:
    """Cards on which more is promised than there is, or on which too many are."""
    return [key for key, card in view.cards.items() if _overfull(view, card, view.bound.get(key, ()))]


def _overfull(view, card, rows):
    alone, turns = ({row.app for row in rows if row.share is share} for share in (ALONE, TURNS))
    largest = {}
    for row in rows:
        if row.share is SLICED:
            largest[row.app] = max(largest.get(row.app, 0), row.memory_bytes)
    mixed = any(row.share is not card.share for row in rows if not row.draining)
    return sum(largest.values()) > card.memory_bytes or len(alone) > 1 or len(turns) > view.tenants or mixed


@dataclass
class MemoryBindings:
    """The port in memory: the calls it got are in `reported`, `fail` makes the next call of that name fail."""

    nodes: tuple[ComputeNode, ...] = ()
    apps: dict[AppKey, HostedApp] = field(default_factory=dict)
    state: Ledger = field(default_factory=Ledger)
    held: set[str] = field(default_factory=set)
    reported: list[tuple[str, AppKey]] = field(default_factory=list)
    fail: dict[str, Exception] = field(default_factory=dict)
    facts: dict[str, object] = field(default_factory=dict)
    rivals: list[object] = field(default_factory=list)
    """Changes that others commit, each just before the next commit."""

    def have(self, *apps):
        self.apps |= {app.key: app for app in apps}
        return self

    def bind(self, *rows):
        self.state = replace(self.state, rows=(*self.state.rows, *rows))
        return self

    async def cluster(self):
        return ClusterFacts(self.nodes, tuple(self.apps.values()), frozenset(self.held), **self.facts)

    async def ledger(self):
        return self.state

    async def commit(self, change, expected):
        if self.rivals:
            self.state = applied(self.state, self.rivals.pop(0))
        self._fail("commit")
        if expected != self.state.version:
            raise VersionChanged("another version")
        self.state = applied(self.state, change)

    async def start(self, app, accelerator):
        self._tell("start", app, AppState.RUNNING)
        self.apps[app] = replace(self.apps[app], accelerator=accelerator)
        self.held |= {row.id for row in self.state.of(app)}

    async def stop(self, app):
        self._tell("stop", app, AppState.STOPPED)

    async def restart(self, app):
        self._tell("restart", app, AppState.RUNNING)

    async def discard(self, bindings):
        kept = (each for each in self.facts.get("bindings", ()) if each.name not in bindings)
        self.facts["bindings"] = tuple(kept)

    def ended(self):
        """All processes of applications that do not run are over."""
        running = {key for key, app in self.apps.items() if app.state == AppState.RUNNING}
        self.held = {row.id for row in self.state.rows if row.app in running and not row.draining}

    def _tell(self, what, app, state):
        self._fail(what)
        self.reported.append((what, app))
        self.apps[app] = replace(self.apps[app], state=state)

    def _fail(self, what):
        if what in self.fail:
            raise self.fail.pop(what)
