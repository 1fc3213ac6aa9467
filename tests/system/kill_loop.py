"""Kill a live server again and again, and compare what is there with what was acknowledged.

    python -m tests.system.kill_loop HOME 300 [MOST_SECONDS]

Tasks, allocations and gangs change all the time. What was acknowledged has to be there after each start, what was
ended has to be gone, a gang is whole or not there, and no card has two owners.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

import ullage
from tests.system.live_server import LiveServer, wait_until

CARDS = 12
MOST_HELD = 3
"""Allocations, or gangs of two, that are held at a time: there is always a card for one more."""


def square(number: int) -> int:
    return number * number


@dataclass
class Books:
    """Acknowledged names: held ones, freed ones, and names whose last request had no answer."""

    held: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)

    def take(self, http: httpx2.Client, kind: str, name: str) -> None:
        self.unsure.add(name)
        if kind == "gangs":
            members = [{"uid": f"{name}-{n}", "resreq": "gpu=1"} for n in range(2)]
            http.put(f"/v1/gangs/{name}", json={"members": members}).raise_for_status()
        else:
            http.post("/v1/allocations", json={"uid": name, "resreq": "gpu=1"}).raise_for_status()
        self._settle(name, self.held)
        self.counts[f"{kind} taken"] += 1

    def give_back(self, http: httpx2.Client, kind: str, name: str) -> None:
        self.held.discard(name)
        self.unsure.add(name)
        http.delete(f"/v1/{kind}/{name}")
        self._settle(name, self.gone)
        self.counts[f"{kind} given back"] += 1

    def _settle(self, name: str, where: set[str]) -> None:
        self.unsure.discard(name)
        where.add(name)

    def check(self, http: httpx2.Client) -> None:
        """Compare all of it with the server; what is unsure is given back."""
        there = {each["uid"]: each for each in http.get("/v1/allocations").json()}
        cards = Counter(gpu["uuid"] for each in there.values() for gpu in each["gpus"])
        assert max(cards.values(), default=0) <= 1, f"a card has two owners: {cards}"
        for name in self.held | self.gone | self.unsure:
            members = [f"{name}-{n}" for n in range(2)] if kind_of(name) == "gangs" else [name]
            found = sum(uid in there for uid in members)
            assert found in (0, len(members)), f"{name} is there in part"
            if kind_of(name) == "gangs":
                gang = http.get(f"/v1/gangs/{name}")
                assert (gang.status_code == 200) == bool(found), f"{name}: {gang.text}"
                assert not found or gang.json()["phase"] == "running", gang.text
            assert name in self.unsure or bool(found) == (name in self.held), f"{name} is not as it was acknowledged"
        for name in tuple(self.unsure):
            self.give_back(http, kind_of(name), name)
        self.gone.clear()


def kind_of(name: str) -> str:
    return "gangs" if name.startswith("g") else "allocations"


class Work(threading.Thread):
    """Changes allocations and gangs until the server is gone."""

    def __init__(self, server: LiveServer, books: Books, start: int) -> None:
        super().__init__()
        self._http, self._books, self.number = server.client(), books, start

    def run(self) -> None:
        with self._http as http:
            try:
                while True:
                    self._change(http)
            except httpx2.TransportError:
                return

    def _change(self, http: httpx2.Client) -> None:
        for letter in "ag":
            self.number += 1
            name = f"{letter}{self.number}"
            self._books.take(http, kind_of(name), name)
            mine = sorted((each for each in self._books.held if each[0] == letter), key=lambda each: int(each[1:]))
            if len(mine) > MOST_HELD - (letter == "g"):
                self._books.give_back(http, kind_of(name), mine[0])


def run(home: Path, kills: int, most_s: float = 3600.0, seed: int = 1) -> Counter[str]:
    """Kill the server so often, or for so long; what was done. It raises at the first difference."""
    ends_at = time.monotonic() + most_s
    os.environ["ULLAGE_HOME"] = str(home)
    seeded, books, number, answers = random.Random(seed), Books(), 0, []
    server = LiveServer(home, f"--gpus={CARDS}", compiled=True)
    with server, ullage.connect() as client:
        session = client.session("work", resreq="cpu=1,mem=64m")
        for kill in range(kills):
            if time.monotonic() > ends_at:
                break
            work = Work(server, books, number)
            work.start()
            answers += [(n, session.submit(square, n)) for n in range(kill * 5, kill * 5 + 5)]
            ends_with = books.counts.total() + seeded.randrange(2, 60)
            wait_until(lambda: books.counts.total() >= ends_with, "so much has changed")  # noqa: B023 - it ends here
            server.kill()
            work.join()
            number = work.number
            server.start()
            with server.client() as http:
                books.check(http)
            books.counts["kills"] += 1
            books.counts["results"] = sum(future.done() for _, future in answers)
        for n, future in answers:
            assert future.result(timeout=120) == n * n
        status = session.status()
        assert (status.succeed, status.failed) == (len(answers), 0), status
        books.counts["results"] = len(answers)
        session.delete()
        wait_until(lambda: "work" not in {each.id for each in client.sessions()}, "the session is deleted")
    return books.counts


if __name__ == "__main__":
    for what, count in sorted(run(Path(sys.argv[1]), int(sys.argv[2]), *map(float, sys.argv[3:])).items()):
        print(f"{what:24} {count}")  # noqa: T201 - it is run by hand
