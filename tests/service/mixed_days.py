"""Days of requests on cards of many kinds, whose owners also change their minds and move to make room for others.

Cards take the isolation of their first user, are cut into partitions, or take few users. What `plan` says is compared
with what `alloc` does.
"""

from __future__ import annotations

from dataclasses import replace

from tests.service.request_days import GIB, PARTS, WHOLE, Owner, RequestDay, nothing

from ullage.core.evicting.moves import Consolidation
from ullage.core.placing.decision import Refusal
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import IsolationPolicy
from ullage.model.request import ResourceRequirement

APART = (
    *("gpu=0.25,isolation=hard", "gpu=0.5,isolation=soft", "gpu=0.25,isolation=shared"),
    *("vram=10g,tflops=5,isolation=partitioned", "vram=20g,tflops=5,isolation=partitioned"),
)
KINDS: tuple[dict[str, object], ...] = (
    {},
    {"isolation_policy": IsolationPolicy.DYNAMIC},
    {"model": "NVIDIA A100-SXM4-40GB", "vram_bytes": 40 * GIB, "compute_gflops": 312_000},
    {"max_users": 2},
)
ROOMS = ("gpu=1", "gpu=2", "cpu=1,gpu=2", "gpu=4")
WAITS_S = 2000.0


class MixedDay(RequestDay):
    """A day with this seed."""

    def _draw_nodes(self) -> list[Node]:
        nodes, rng = super()._draw_nodes(), self.rng
        same = rng.choice((None, *KINDS))

        def changed(gpu: Gpu) -> Gpu:
            return replace(gpu, **(rng.choice(KINDS) if same is None else same))

        return [replace(node, gpus=tuple(map(changed, node.gpus))) for node in nodes]

    def _draw(self, uid: str, text: str, priority: int, gang: GangClaim | None = None) -> Request:
        if text in PARTS and self.rng.random() < 0.4:
            text = self.rng.choice(APART)
        return super()._draw(uid, text, priority, gang)

    def run(self, seconds: float = 3600.0) -> None:
        self._again(self._make_room, self.rng.choice((60.0, 200.0)))
        super().run(seconds)

    def _ask(self, uid: str) -> None:
        owner, service = self.owners[uid], self.service
        asks = not owner.over and uid not in service.state.fleet.ledger and owner.request.claim.gang is None
        if asks and self.rng.random() < 0.05:
            other = ResourceRequirement.from_string(self.rng.choice((*PARTS, *APART, *WHOLE)))
            owner.request = replace(owner.request, requirement=other)
            self.requests.changed_its_mind(uid)
        if asks and not owner.preempts and owner.patience >= self.now:
            planned = service.allocations.simulate(owner.request).outcome
            super()._ask(uid)
            held = service.state.fleet.ledger.get(uid)
            if isinstance(planned, Refusal) != (held is None) or (held is not None and held.gpus != planned.gpus):
                self.requests.fail(f"{uid} was to get {planned}, and has {held}")
        else:
            super()._ask(uid)

    # --- moves ---

    def _make_room(self) -> None:
        rng = self.rng
        self._asked += 1
        uid, asked = f"room{self._asked}", ResourceRequirement.from_string(rng.choice(ROOMS))
        claim = Claim(namespace=rng.choice(("a", "b")), priority=rng.choice((0, 5)), created_at=self.now)
        request = Request(uid, asked, claim)
        found = self.service.consolidations.carry_out(request, [uid], None, nothing)
        if isinstance(found, Consolidation):
            self.owners[uid] = Owner(request, preempts=False, patience=self.now + WAITS_S, life_s=60.0)
            for move in found.moves:
                self.agenda.after(rng.uniform(0, 60), lambda moves=move.allocation.id: self._leave_to_move(moves))
            self.agenda.after(rng.uniform(0, 100), lambda: self._ask(uid))

    def _leave_to_move(self, uid: str) -> None:
        """An owner that was asked to move leaves, and comes back some time later."""
        owner, held = self.owners[uid], self.service.state.fleet.ledger.get(uid)
        if owner.over or owner.leaves or not isinstance(held, Allocation):
            return
        entry = self.service.state.allocator.nominations.of(uid)
        owner.request = owner.request if entry is None else entry.request
        owner.preempts, owner.patience = False, max(owner.patience, self.now + WAITS_S)
        self.service.allocations.dealloc(uid, None, nothing)
        self.agenda.after(self.rng.uniform(0, 20), lambda: self._ask(uid))
