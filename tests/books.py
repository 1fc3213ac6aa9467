"""Books with workers on named cards, and requests that find no room beside them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from ullage.core.books.fleet import Fleet
from ullage.core.evicting.preemption import preempt
from ullage.core.evicting.victims import EvictionContext
from ullage.core.placing.candidates import find
from ullage.core.placing.decision import Candidates, Choice, Refusal
from ullage.core.placing.nomination import Nominations
from ullage.core.placing.offers import NodeRefusal
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import place
from ullage.core.verdict.quota import Quotas
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.claim import Claim, Request
from ullage.model.error import Conflict
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.quota import Caps, Quota
from ullage.model.request import ResourceRequirement
from ullage.service.node_offers import NodeOffers

GIB = 2**30
NOW = 1000.0
COLUMNS = ("cpu_free", "memory_free", "slots_free", "gpu_free", "compute_free", "vram_free", "card_users")


def a_card(uuid: str, tflops: int = 100, gib: int = 16, **facts: object) -> Gpu:
    return Gpu(uuid, int(uuid[-1]), vram_bytes=gib * GIB, compute_gflops=tflops * 1000, **facts)


def a_node(name: str, *cards: Gpu, **facts: object) -> Node:
    return Node(name, 64_000, 2**40, cards or (a_card(f"{name}-0"),), **facts)


def refusals_of(found: NodeOffers) -> dict[str, NodeRefusal]:
    """Return the reason of each refused node."""
    return {name: refusal for refusal, names in found.refused for name in names}


def ask(
    text: str = "gpu=1,tflops=80,vram=8g", uid: str = "new", strategy: str | None = None, **claim: object
) -> Request:
    facts = {"priority": 10, "namespace": "team"} | claim
    return Request(uid, ResourceRequirement.from_string(text), Claim(**facts), strategy)


def found_with(
    fleet: Fleet, rules: Rules, request: Request, nominations: Nominations, cards: Sequence[int] | None = None
) -> Candidates:
    """Return the candidates with the room of those who come before the request charged."""
    return find(fleet, rules, request, cards, ahead=nominations.before(fleet, request))


def placed_with(fleet: Fleet, rules: Rules, request: Request, nominations: Nominations) -> Choice | Refusal:
    """Return the place with the room of those who come before the request charged."""
    return place(fleet, rules, request, ahead=nominations.before(fleet, request))


class Books:
    """A fleet, and workers put on named cards."""

    def __init__(self, *nodes: Node) -> None:
        self.fleet = Fleet(nodes)

    def run(
        self,
        uid: str,
        *cards: str,
        of: str = "tflops=50,vram=10g",
        state: AllocationState = AllocationState.BOUND,
        since: float = 500.0,
        executor: bool = False,
        **claim: object,
    ) -> Books:
        fleet, requirement = self.fleet, ResourceRequirement.from_string(f"gpu={len(cards)},{of}".rstrip(","))
        positions = [fleet.card_of[uuid] for uuid in cards]
        part = requirement.part
        charges = (
            ()
            if part is None
            else tuple(
                Charge(*part.on(int(fleet.compute_total[c]), int(fleet.vram_total[c])), requirement.cards.isolation)
                for c in positions
            )
        )
        facts = Claim(**{"namespace": "team", **claim})
        node = fleet.nodes[int(fleet.card_row[positions[0]])].name
        owner = None if executor else facts
        fleet.charge(Allocation(uid, node, requirement, cards, state, charges, owner, since, since))
        return self

    def preempt(self, request: Request | None = None, rules: Rules | None = None, **more: object):
        before = content(self.fleet)
        found = preempt(EvictionContext(self.fleet, rules or Rules(), NOW, **more), request or ask())
        assert content(self.fleet) == before
        return found


def content(fleet: Fleet) -> tuple[object, ...]:
    columns = (getattr(fleet, name).tolist() for name in COLUMNS)
    return (set(fleet.leaving), *columns, fleet.holders, dict(fleet.ledger), dict(fleet.usage))


def frozen(fleet: Fleet) -> tuple[object, ...]:
    return (*content(fleet)[:-3], [dict(held) for held in fleet.holders], *content(fleet)[-2:])


def capped(**caps: int) -> Rules:
    compute = caps.get("tflops")
    total = Caps(None if compute is None else compute * 1000)
    return Rules(quotas=Quotas({"team": Quota(total_requests=total, max_workers=caps.get("workers", 100))}))


def crowd(draw: st.DrawFn, books: Books, nodes: Sequence[Node], count: int, texts: Sequence[str]) -> None:
    """Put up to so many workers of all kinds on cards: those that find their cards taken stay away."""
    for n in range(count):
        gpus = draw(st.sampled_from(nodes)).gpus
        cards = tuple(gpu.uuid for gpu in draw(st.permutations(gpus))[: draw(st.integers(1, 2))])
        facts = {
            "priority": draw(st.integers(-1, 3)),
            "namespace": draw(st.sampled_from(["team", "team", "other"])),
            "workload": draw(st.sampled_from(["web", "job"])),
            "protected_until": draw(st.sampled_from([0.0, 0.0, 0.0, NOW + 1])),
            "state": draw(st.sampled_from([AllocationState.BOUND] * 6 + [AllocationState.RELEASING])),
            "executor": draw(st.integers(0, 9)) == 0,
            "since": float(draw(st.integers(0, 3))),
        }
        try:
            books.run(f"w{n}", *cards, of=draw(st.sampled_from(texts)), **facts)
        except Conflict:
            continue
