"""The port of bindings on a cluster: the ledger, the informers, and writes that start and stop applications."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import replace

from ullage.binding.permit import BindingClaims
from ullage.binding.rows import Ledger, LedgerChange, row_on
from ullage.binding.view import BindingInventory, BindingView
from ullage.kube.bindings.allocations_map import AllocationsMap, not_there
from ullage.kube.bindings.conflicting_claims import ConflictingClaims
from ullage.kube.bindings.hosted_apps import (
    WORKLOADS,
    HostedApps,
    install_user,
    parts_of,
    replicas_of,
    restarting,
    scaled,
    starting,
    stopping,
    tenant_in,
)
from ullage.kube.bindings.ledger import LedgerStore, LedgerUse
from ullage.kube.bindings.nodes import compute_node
from ullage.kube.bindings.occupants import Occupants
from ullage.kube.bindings.terms import BindingTerms
from ullage.kube.client.api import Selection
from ullage.kube.client.changes import Change as Write
from ullage.kube.client.changes import Delete
from ullage.kube.client.errors import VersionConflict
from ullage.kube.client.informer import Changed, Delta, Informer, Removed
from ullage.kube.client.kinds import GPU_BINDINGS, Kind
from ullage.kube.client.objects import KubeNode, Namespace, Object, Pod
from ullage.kube.context import KubeContext
from ullage.kube.leader.ready_term import ReadyTerm
from ullage.model.binding import Binding, BindingState, Tenant
from ullage.model.compute import AppKey, ComputeNode
from ullage.model.compute_result import Problem
from ullage.model.error import InvalidRequest, NotFound, UllageError, Unavailable
from ullage.service.bindings_port import ClusterFacts
from ullage.wire.document import Document
from ullage.wire.gpubinding import APP_LABEL, ROW, read_binding


class KubeBindings:
    """The port (`ullage.service.bindings_port.BindingPort`) on an API server. Every write is in our leadership term.

    The caller runs `informers`. `claims` are the bindings in force, by which pods are judged.
    """

    def __init__(
        self, context: KubeContext, terms: BindingTerms, term: ReadyTerm, conflicting_claims: ConflictingClaims
    ) -> None:
        """`conflicting_claims` are further problems with bindings."""
        api, followed, self._cluster = context.api, context.followed, context.cluster
        self._candidate, self._followed, self._terms = context.candidate, followed, terms
        self._mirror, self._term, self._conflicting_claims = term.mirror, term, conflicting_claims
        self._workloads = {kind: Informer(api, kind, Selection(labels=APP_LABEL)) for kind in WORKLOADS}
        self.objects = Informer(api, GPU_BINDINGS)
        self.allocations = AllocationsMap(api, terms.allocations) if terms.allocations else None
        self._discarded: set[str] = set()
        self.occupants = Occupants(followed.pods, context.cluster, self.tenant, context.domain)
        use = LedgerUse(self._held, self._restored, self._forget_claims)
        self.store = LedgerStore(context, terms.name, terms.namespace, use)
        self._hosted = HostedApps(context.read_pod)
        self._nodes: dict[str, tuple[ComputeNode, tuple[Problem, ...]]] = {}
        self._foreign: dict[str, tuple[str, Binding]] = {}
        self._claims: BindingClaims | None = None
        self._known_inventory: BindingInventory | None = None
        self._on_change: list[Callable[[], None]] = []
        self._on_end: list[Callable[[], None]] = []
        term.mirror.machines.subscribe(self._on_machine)
        followed.nodes.subscribe(self._on_node)
        followed.namespaces.subscribe(self._on_namespace)
        followed.pods.subscribe(self._on_pod)
        self.objects.subscribe(self._on_object)
        if self.allocations is not None:
            self.allocations.informer.subscribe(lambda _: self._forget_claims())

    @property
    def informers(self) -> tuple[Informer[Object], ...]:
        """The informers that only bindings need."""
        shown = [] if self.allocations is None else [self.allocations.informer]
        return (self.objects, *self._workloads.values(), *shown)

    def subscribe(self, changed: Callable[[], None], pod_ended: Callable[[], None]) -> None:
        """Call `changed` when the ledger changed or its projections may differ from it, `pod_ended` when a pod ended.

        A pod that was asked to leave may be gone then.
        """
        self._on_change.append(changed)
        self._on_end.append(pod_ended)

    def wake(self) -> None:
        """Have the projections of the ledger compared with it."""
        for changed in self._on_change:
            changed()

    # --- the port ---

    async def cluster(self) -> ClusterFacts:
        """Return the current facts. Raises `Unavailable` until all informers have synced."""
        if unready := self.unready:
            raise Unavailable(unready, code="not-ready")
        ledger = await self.ledger()
        namespaces = self._followed.namespaces.objects
        apps, problems = self._hosted.apps(self._parts(), namespaces, self.occupants.identities())
        foreign = tuple(self.foreign)
        problems += [Problem(each.name, reason) for each in foreign if (reason := self.claims.reason(each))]
        self._mirror.settle()
        use = {name: self._cluster.use_of(name) for name in self._nodes}
        nodes = (replace(node, used=use[name], requested=use[name]) for name, (node, _) in self._nodes.items())
        problems += [problem for _, found in self._nodes.values() for problem in found]
        problems += (each.problem for each in self._conflicting_claims.now)
        return ClusterFacts(
            tuple(nodes),
            apps,
            self.occupants.held(ledger),
            foreign,
            problems=tuple(problems),
            quotas=self._terms.quotas,
            owner_use=dict(self.occupants.used_by),
            users=tuple(self.occupants.users()),
            strict=self._terms.strict,
            held_cards=self.occupants.held_cards(),
        )

    async def ledger(self) -> Ledger:
        """Return the last committed ledger.

        Raises:
            Unavailable: not all objects needed to rebuild it are known.

        """
        if not self.synced:
            raise Unavailable(self.unsynced, code="not-ready")
        return await self.store.read()

    async def commit(self, change: LedgerChange, expected: int) -> None:
        """Write a whole change or nothing; see `LedgerStore.commit`."""
        await self.store.commit(change, expected)

    async def start(self, app: AppKey, accelerator: str) -> None:
        """Scale up the workloads of an application: all of them or, as far as possible, none."""
        why, begun = await self._cards_of(app), list[tuple[Kind[Object], Object, int]]()
        for kind, each in self._parts_of(app):
            try:
                started = await self._change(kind, each, starting(kind, each, accelerator, why))
            except UllageError:
                for of, back, replicas in begun:
                    with suppress(UllageError):
                        await self._change(of, back, scaled(of, back, replicas))
                raise
            begun.append((kind, started, replicas_of(each)))

    async def stop(self, app: AppKey) -> None:
        """Scale all workloads of an application to 0."""
        await self._write_each(app, stopping)

    async def restart(self, app: AppKey) -> None:
        why = await self._cards_of(app)
        await self._write_each(app, lambda kind, each: restarting(kind, each, why))

    async def _cards_of(self, app: AppKey) -> str:
        """Return a text that differs for other rows of an application."""
        rows = ",".join(sorted(row.id for row in (await self.store.read()).of(app)))
        return hashlib.sha256(rows.encode()).hexdigest()[:_DIGITS]

    async def discard(self, bindings: Collection[str]) -> None:
        """Delete bindings that are no rows of the ledger. One that was deleted or replaced meanwhile is skipped."""
        self._discarded.update(bindings)
        self._forget_claims()
        there = [self.objects.objects["", name] for name in sorted(self._foreign.keys() & set(bindings))]
        for each in there:
            with suppress(NotFound, VersionConflict):
                await self._write(Delete(GPU_BINDINGS, each.metadata.name, uid=each.metadata.uid))

    # --- by what pods are judged ---

    def tenant(self, pod: Document) -> Tenant:
        """Return the tenant of a pod. Raises `InvalidRequest`: its labels are not strings."""
        return tenant_in(pod, self._followed.namespaces.objects)

    @property
    def synced(self) -> bool:
        """Whether all informers that count have synced."""
        followed = self._followed
        shared = followed.nodes.synced and followed.pods.synced and followed.namespaces.synced
        return shared and all(informer.synced for informer in self.informers)

    @property
    def unready(self) -> str:
        """The reason why nothing may be decided now; "" if it may. The pods from before our term must be known."""
        return self._term.unready or self.unread

    @property
    def unread(self) -> str:
        """What has not been read yet of bindings and their ledger, and the reason if it is known; "" if all is."""
        if not self.synced:
            return self.unsynced
        error = f": {self.store.last_error}" if self.store.last_error else ""
        return "" if self.store.now is not None else f"the ledger of bindings has not been read yet{error}"

    @property
    def unsynced(self) -> str:
        """What has not been read yet, and the reason if it is known."""
        missing = next((informer for informer in self.informers if not informer.synced), None)
        error = "" if missing is None or missing.last_error is None else f": {missing.last_error.message}"
        return f"bindings have not been read yet{error}"

    @property
    def claims(self) -> BindingClaims:
        """Return the bindings: rows of the ledger first, then foreign ones, the oldest first.

        Raises:
            Unavailable: they are uncertain now.

        """
        ledger = self.store.now
        if ledger is None or not self.synced:
            raise Unavailable("bindings have not been read yet", code="not-ready")
        if self._claims is None:
            own = BindingView(self._inventory.shared(ledger.shares), ledger.rows, quotas=self._terms.quotas)
            self._claims = BindingClaims(own, self.foreign, strict=self._terms.strict)
        return self._claims

    @property
    def _inventory(self) -> BindingInventory:
        if self._known_inventory is None:
            self._known_inventory = BindingInventory(tuple(node for node, _ in self._nodes.values()))
        return self._known_inventory

    @property
    def foreign(self) -> Iterator[Binding]:
        """Yield the bindings that are no rows of the ledger: objects, the oldest first, then rows of app-service."""
        for _, name in sorted((since, name) for name, (since, _) in self._foreign.items()):
            _, binding = self._foreign[name]
            yield binding
        yield from self.imports

    @property
    def imports(self) -> tuple[Binding, ...]:
        """Return the rows that only app-service wrote."""
        if self.allocations is None:
            return ()
        objects = (binding for _, binding in self._foreign.values())
        found = not_there(self.allocations.rows(), self.store.now or Ledger(), objects)
        return tuple(each for each in found if each.name not in self._discarded)

    # --- informers and writes ---

    def _forget_claims(self) -> None:
        self._claims = None
        self.wake()

    def _on_machine(self, name: str) -> None:
        if found := self._followed.nodes.objects.get(("", name)):
            self._describe(found)

    def _on_node(self, delta: Delta[KubeNode]) -> None:
        if not isinstance(delta, Removed):
            self._describe(delta.new)
        elif self._nodes.pop(delta.last.metadata.name, None) is not None:
            self._forget_cards()

    def _describe(self, node: KubeNode) -> None:
        """Read a node as the books have its cards. The mirror has read it before."""
        found = compute_node(node, self._mirror.machines.by_name[node.metadata.name])
        if found != self._nodes.get(node.metadata.name):
            self._nodes[node.metadata.name] = found
            self._forget_cards()

    def _forget_cards(self) -> None:
        self._known_inventory = None
        self._forget_claims()

    def _on_pod(self, delta: Delta[Pod]) -> None:
        if isinstance(delta, Removed) or (isinstance(delta, Changed) and delta.new.finished):
            for ended in self._on_end:
                ended()

    def _on_namespace(self, delta: Delta[Namespace]) -> None:
        old = delta.old if isinstance(delta, Changed) else None
        found = delta.last if isinstance(delta, Removed) else delta.new
        if install_user(old) != install_user(None if isinstance(delta, Removed) else found):
            self.occupants.look_again(found.metadata.name)

    def _on_object(self, delta: Delta[Object]) -> None:
        found = delta.last if isinstance(delta, Removed) else delta.new
        self._foreign.pop(found.metadata.name, None)
        if not isinstance(delta, Removed) and ROW not in (found.metadata.annotations or {}):
            self._foreign[found.metadata.name] = found.metadata.creation_timestamp or "", _read(found)
        self._forget_claims()

    def _parts(self) -> Iterator[tuple[Kind[Object], Object]]:
        return ((kind, each) for kind, informer in self._workloads.items() for each in informer.objects.values())

    def _parts_of(self, app: AppKey) -> list[tuple[Kind[Object], Object]]:
        return list(parts_of(app, self._parts(), self._followed.namespaces.objects))

    async def _write_each(self, app: AppKey, change: Callable[[Kind[Object], Object], Write | None]) -> None:
        for kind, each in self._parts_of(app):
            found = change(kind, each)
            if found is not None:
                await self._change(kind, each, found)

    async def _change(self, kind: Kind[Object], workload: Object, change: Write) -> Object:
        """Write, and apply the new workload to the cache at once, so that no decision waits for the watch."""
        written = kind.read(await self._write(change))
        self._workloads[kind].apply_write(workload, written)
        return written

    def _restored(self) -> Ledger:
        """Return the rows that objects still show. New rows are numbered after them."""
        cards, rows, version = self._inventory.by_device, [], 0
        for found in self.objects.objects.values():
            row = (found.metadata.annotations or {}).get(ROW)
            binding = _read(found)
            card = cards.get(binding.uuid)
            if row and card is not None and binding.on(card.memory_bytes).state is not BindingState.INVALID:
                app = AppKey(binding.app, binding.owner, binding.namespace)
                rows.append(row_on(card, row, app, binding.memory_bytes))
                numbered = _NUMBER.search(row)
                version = max(version, int(numbered[1]) if numbered else 0)
        return Ledger(version, tuple(rows))

    def _held(self) -> frozenset[str]:
        return self.occupants.held(self.store.now or Ledger())

    async def _write(self, change: Write) -> bytes:
        return await self._candidate.write(self._candidate.leading(), change)


_DIGITS = 16
_NUMBER = re.compile(r"-([0-9]{1,15})-[0-9]+$")
"""The version in which a row was created, at the end of its id."""


def _read(found: Object) -> Binding:
    """Return a foreign binding. Its status is computed again, so the written one is ignored."""
    try:
        binding = read_binding(found.document)
    except InvalidRequest as error:
        return Binding(found.metadata.name, "", "", state=BindingState.INVALID, reason=error.message)
    if binding.state is BindingState.INVALID:
        return binding
    return replace(binding, state=BindingState.BOUND, reason="")
