"""A cluster whose pods hold cards, and whether the books of the front before it are what a slow oracle says."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import defaultdict

from tests.kube.api_server import ApiServer
from tests.kube.cards_oracle import WHOLE_PPM, Amount, Cards, CardsOracle, Document, Says
from tests.kube.conftest import until
from ullage.kube.front import Front
from ullage.model.family_ids import uid_of


class CardGame(ABC):
    """The state of the cluster, and what happened so far: `log`."""

    def __init__(self, server: ApiServer, seed: int) -> None:
        self.server, self.chance = server, random.Random(seed)
        self.oracle = CardsOracle({}, {})
        self.log: list[str] = []
        self.number = 0

    @property
    @abstractmethod
    def front(self) -> Front:
        """The process that leads."""

    def know(self, node: str, cards: dict[str, int]) -> None:
        """Note the MiB of the cards of a node."""
        self.oracle.capacity |= cards
        self.oracle.node_of |= dict.fromkeys(cards, node)

    def know_from_books(self) -> None:
        """Note the cards of all nodes as the front reads them."""
        fleet = self.front.cluster.allocator.fleet
        for at, node in enumerate(fleet.nodes):
            cards = (fleet.cards[card] for card in fleet.cards_on(at))
            self.know(node.name, {each.uuid: (each.vram_bytes or 0) // 2**20 for each in cards})

    def name(self, kind: str) -> str:
        self.number += 1
        return f"{kind}{self.number}"

    def remove(self, name: str) -> None:
        self.log.append(f"{name} is gone")
        self.server.do(lambda: self.server.rules.delete(("pods", "default", name), {"gracePeriodSeconds": 0}))

    def pods(self) -> dict[str, Document]:
        found = self.server.do(lambda: self.server.store.at(self.server.store.revision))
        return {name: item for (plural, _, name), item in found.items() if plural == "pods"}

    def expected(self) -> dict[str, Says]:
        return {name: says for name, pod in self.pods().items() if (says := self.oracle.says(pod)) is not None}

    def books(self) -> dict[str, Cards]:
        self.front.mirror.settle()
        names = {pod["metadata"]["uid"]: name for name, pod in self.pods().items()}
        found: dict[str, Cards] = {}
        for uid, held in self.front.cluster.allocator.fleet.ledger.items():
            whole = {each: (WHOLE_PPM, self.oracle.capacity[each]) for each in held.gpus}
            charged = zip(held.gpus, held.charges, strict=False)
            parts = {each: (charge.compute, charge.vram // 2**20) for each, charge in charged}
            found.setdefault(names.get(uid_of(uid), uid), {}).update(whole | parts)
        return {name: cards for name, cards in found.items() if cards}

    def unseen(self) -> str:
        """A pod of which the front has not heard the last; "" if there is none."""
        informed = self.front.mirror._pods.objects
        seen = {name: pod.metadata.resource_version for (_, name), pod in informed.items()}
        there = {name: pod["metadata"]["resourceVersion"] for name, pod in self.pods().items()}
        return next((name for name in there.keys() | seen.keys() if there.get(name) != seen.get(name)), "")

    def differs(self) -> str:
        """Why the books are not what the oracle says; "" if they are."""
        if name := self.unseen():
            return f"{name} is not known yet"
        said, books = self.expected(), self.books()
        for name, says in said.items():
            held = books.pop(name, {})
            if says.unknown and held:
                return f"{name} holds {held}, and nobody knows what it has"
            if says.some and held and (len(held) != says.some or any(ppm != WHOLE_PPM for ppm, _ in held.values())):
                return f"{name} holds {held}, not {says.some} cards"
            if not says.unknown and not says.some and held != says.cards:
                return f"{name} holds {held}, not {says.cards}"
        return f"nobody has {books}" if books else ""

    def story(self) -> list[str]:
        """What happened to the pod that differs, and what happened last."""
        name = self.differs().partition(" ")[0]
        return [*(line for line in self.log if line.startswith(f"{name} ")), *self.log[-5:]]

    def used(self) -> dict[str, Amount]:
        """What is held of each card, by the books, which are those of the oracle."""
        used: defaultdict[str, Amount] = defaultdict(lambda: (0, 0))
        for cards in self.books().values():
            for each, (ppm, mib) in cards.items():
                used[each] = used[each][0] + ppm, used[each][1] + mib
        return used

    async def check(self) -> None:
        await until(lambda: not self.differs(), lambda: f"{self.differs()}; {self.story()}", 20.0)
        for each, (ppm, mib) in self.used().items():
            assert ppm <= WHOLE_PPM, (each, ppm, self.log[-12:])
            assert mib <= self.oracle.capacity[each], (each, mib, self.log[-12:])
