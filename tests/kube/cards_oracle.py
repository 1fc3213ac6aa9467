"""What each pod holds of each card, worked out slowly from the API by the rules of docs/reference/pods-of-others.md.

Nothing here is shared with what Ullage reads: a pod holds what its annotations name, what its words ask for, or some
cards of its node. Amounts are millionths of the compute of a card and MiB.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Document = dict[str, Any]
Amount = tuple[int, int]
Cards = dict[str, Amount]
WHOLE_PPM = 1_000_000
OURS = "ullage.io/gpu-ids"
GPU, MIB, PERCENT = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage"
ALLOCATED = "hami.io/vgpu-devices-allocated"
ASCEND_ALLOCATED, ASCEND_MIB = "hami.io/Ascend910B3-devices-allocated", 65_536


@dataclass(frozen=True)
class Says:
    """What a pod holds: certain cards, or `some` whole cards of its node that nobody names, or nobody knows."""

    cards: Cards = field(default_factory=dict)
    some: int = 0
    unknown: bool = False


class CardsOracle:
    """`capacity` has the MiB of each card, `node_of` its node. `asked` is what a pod asks of each card, by name.

    `devices` are pods that HAMi's annotations of NVIDIA's cards describe, container by container; `fixed` is what other
    pods with a record hold of each card.
    """

    def __init__(self, capacity: dict[str, int], node_of: dict[str, str]) -> None:
        self.capacity, self.node_of = capacity, node_of
        self.asked: dict[str, Amount | None] = {}
        self.fixed: dict[str, Cards] = {}
        self.some: dict[str, int] = {}

    def says(self, pod: Document) -> Says | None:
        """Return what a pod holds; None if it holds nothing, as it is on no node or has ended."""
        name, notes = pod["metadata"]["name"], pod["metadata"].get("annotations", {})
        node = pod["spec"].get("nodeName", "")
        if not node or pod["status"].get("phase") in ("Succeeded", "Failed"):
            return None
        if name in self.fixed:
            return Says(self.fixed[name])
        if ASCEND_ALLOCATED in notes:
            says = self._by_devices(pod, node, notes[ALLOCATED]) if ALLOCATED in notes else Says()
            return Says(says.cards | _of_ascend(notes[ASCEND_ALLOCATED]))
        if ALLOCATED in notes:
            return self._by_devices(pod, node, notes[ALLOCATED])
        if OURS in notes:
            return Says({card: self._amount(card, self.asked[name]) for card in notes[OURS].split(",") if card})
        return Says(some=self.some[name])

    def _amount(self, card: str, asked: Amount | None) -> Amount:
        return (WHOLE_PPM, self.capacity[card]) if asked is None else asked

    def _by_devices(self, pod: Document, node: str, written: str) -> Says:
        """Sidecars and app containers together; init containers in their turn, until all of them have ended."""
        spec = pod["spec"]
        try:
            parts = [[_device(each) for each in part.split(":") if each] for part in written.split(";")[:-1]]
        except ValueError:
            return Says(unknown=True)
        if any(self.node_of.get(uuid) != node for part in parts for uuid, _ in part):
            return Says(unknown=True)
        init = spec.get("initContainers", [])
        stay: defaultdict[str, Amount] = defaultdict(lambda: (0, 0))
        peak: Cards = {}
        for container, part in zip(init, parts, strict=False):
            if container.get("restartPolicy") == "Always":
                _add(stay, part)
            else:
                during = defaultdict(lambda: (0, 0), stay)
                _add(during, part)
                peak = _most(peak, during)
        for part in parts[len(init) :]:
            _add(stay, part)
        over = _init_is_over(pod, init)
        found = dict(stay) if over else _most(peak, stay)
        if pod["metadata"]["annotations"].get(OURS) and _asks_a_whole_card(pod, init, over=over):
            return Says({card: (WHOLE_PPM, self.capacity[card]) for card in found})
        return Says({card: self._clipped(card, amount) for card, amount in found.items()})

    def _clipped(self, card: str, amount: Amount) -> Amount:
        """A device of 0 MiB holds its card whole."""
        ppm, mib = amount
        return (WHOLE_PPM, self.capacity[card]) if mib == 0 else (min(ppm, WHOLE_PPM), min(mib, self.capacity[card]))


def _of_ascend(written: str) -> Cards:
    """What app containers have of cards of Ascend: memory alone, or all of a card."""
    found: defaultdict[str, Amount] = defaultdict(lambda: (0, 0))
    for part in written.split(";")[:-1]:
        for uuid, (_, mib) in map(_device, filter(None, part.split(":"))):
            found[uuid] = (WHOLE_PPM, ASCEND_MIB) if mib >= ASCEND_MIB else (0, found[uuid][1] + mib)
    return dict(found)


def _device(text: str) -> tuple[str, Amount]:
    uuid, _, mib, cores = text.split(",")
    return uuid, (int(cores) * 10_000, int(mib))


def _add(to: dict[str, Amount], part: list[tuple[str, Amount]]) -> None:
    for uuid, (ppm, mib) in part:
        before = to.get(uuid, (0, 0))
        to[uuid] = before[0] + ppm, before[1] + mib


def _most(one: Cards, other: Cards) -> Cards:
    zero = 0, 0
    return {
        card: (
            max(one.get(card, zero)[0], other.get(card, zero)[0]),
            max(one.get(card, zero)[1], other.get(card, zero)[1]),
        )
        for card in one.keys() | other.keys()
    }


def _asks_a_whole_card(pod: Document, init: list[Document], *, over: bool) -> bool:
    """Whether a container that is there asks for all cores of a card: then all containers have theirs whole."""
    there = [each for each in init if not over or each.get("restartPolicy") == "Always"]
    asked = (each["resources"]["limits"] for each in (*there, *pod["spec"]["containers"]))
    return any(GPU in limits and not limits.keys() & {MIB, PERCENT} for limits in asked)


def _init_is_over(pod: Document, init: list[Document]) -> bool:
    """Whether every init container that ends has ended with 0."""
    states = {each["name"]: each["state"] for each in pod["status"].get("initContainerStatuses", ())}
    ends = [each["name"] for each in init if each.get("restartPolicy") != "Always"]
    over = (states.get(name, {}).get("terminated", {}).get("exitCode") == 0 for name in ends)
    return all(over)


def overfull(oracle: CardsOracle, pods: Iterable[Document], most_users: int) -> dict[str, tuple[Amount, int]]:
    """Return what pods hold of each card that is held above 100 %, or by too many, and the number of its users."""
    used: defaultdict[str, Amount] = defaultdict(lambda: (0, 0))
    users: Counter[str] = Counter()
    for pod in pods:
        says = oracle.says(pod)
        for card, (ppm, mib) in () if says is None else says.cards.items():
            used[card] = used[card][0] + ppm, used[card][1] + mib
            users[card] += 1
    return {
        card: ((ppm, mib), users[card])
        for card, (ppm, mib) in used.items()
        if ppm > WHOLE_PPM or mib > oracle.capacity[card] or users[card] > most_users
    }
