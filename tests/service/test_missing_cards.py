"""A card that is held counts for its holder also while it is missing, over a restart too."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.service.test_restart import Machine

from ullage.core.books.usage import Usage
from ullage.core.placing.decision import Refusal
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.error import Conflict
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import Part
from ullage.model.quota import Caps, Quota
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.service.engine_port import NodeReported
from ullage.service.store_port import PutAllocation
from ullage.storage.witness import witness_path

GIB = 1 << 30
CARDS = tuple(
    Gpu(f"g{n}", n, model="NVIDIA A100", vram_bytes=40 * GIB, compute_gflops=100_000, pool="p") for n in range(2)
)
NODE = Node("n1", 8000, 64 * GIB, CARDS)
OTHER = Node("n2", 8000, 64 * GIB, (replace(CARDS[0], uuid="h0"),))
WHOLE = Usage(100_000, 40 * GIB, 100_000, 40 * GIB, 1, 1_000_000)
HALF = Usage(50_000, 20 * GIB, 80_000, 30 * GIB, 1, 500_000)


def nobody() -> None:
    """Nobody waits for the answer."""


def ask(uid: str, text: str, limit: Part | None = None) -> Request:
    return Request(uid, ResourceRequirement.from_string(text), Claim("team", limit=limit))


@pytest.fixture
def machine(tmp_path) -> Iterator[Machine]:
    with Machine(str(tmp_path / "state.db"), NODE) as lab:
        lab.service.quotas.put("team", Quota(total_requests=Caps(vram_bytes=50 * GIB)), nobody)
        lab.pump()
        yield lab


def give(machine: Machine, text: str, limit: Part | None = None) -> None:
    outcome = machine.service.allocations.bind(ask("first", text, limit), ["g0"], nobody)
    assert isinstance(outcome, Allocation)
    machine.pump()


def usage(machine: Machine) -> Usage:
    return machine.service.state.fleet.usage["team"]


@pytest.mark.parametrize(
    ("text", "limit", "held"),
    [
        pytest.param("gpu=1", None, WHOLE, id="a whole card"),
        pytest.param("gpu=0.5", Part(0, 30 * GIB, 800_000), HALF, id="a part with a limit in percent"),
    ],
)
@pytest.mark.parametrize(
    "reported",
    [
        pytest.param((), id="no node yet"),
        pytest.param((OTHER,), id="another node"),
        pytest.param((replace(NODE, gpus=CARDS[1:]),), id="its node without the card"),
    ],
)
def test_a_missing_card_counts_in_the_quota_after_a_restart(machine, text, limit, held, reported):
    give(machine, text, limit)
    assert usage(machine) == held
    machine._nodes = reported
    for _ in range(2):
        machine.restart()
        assert usage(machine) == held


def test_a_quota_is_not_overrun_while_a_card_is_missing(machine):
    give(machine, "gpu=1")
    machine._nodes = (replace(NODE, gpus=CARDS[1:]),)
    machine.restart()
    outcome = machine.service.allocations.alloc(ask("second", "gpu=0.5"), nobody)
    assert isinstance(outcome, Refusal)
    assert outcome.code is Code.QUOTA_TOTAL_VRAM_REQUEST
    assert (outcome.rejections[0].needed, outcome.rejections[0].had) == (20 * GIB, 10 * GIB)


def test_a_missing_card_is_shown_as_it_was_and_comes_back_as_it_is(machine):
    give(machine, "gpu=1")
    machine._nodes = (replace(NODE, gpus=CARDS[1:]),)
    machine.restart()
    shown = {gpu.uuid: gpu for gpu in machine.service.state.nodes["n1"].gpus}
    assert shown["g0"] == replace(CARDS[0], healthy=False)
    machine._nodes = (NODE,)
    machine.restart()
    assert machine.service.state.nodes["n1"].gpus == CARDS
    assert usage(machine) == WHOLE


def test_a_card_whose_capacity_changed_while_it_is_held_is_remembered_as_it_is_now(machine):
    give(machine, "gpu=1")
    grown = replace(CARDS[0], vram_bytes=48 * GIB)
    machine.service.on_engine_event(NodeReported(replace(NODE, gpus=(grown, CARDS[1]))))
    machine.pump()
    held = usage(machine)
    assert held.vram_request == 48 * GIB
    machine._nodes = ()
    machine.restart()
    assert usage(machine) == held


def test_an_allocation_that_followed_its_card_is_found_on_its_new_node(machine):
    give(machine, "gpu=1")
    machine.service.on_engine_event(NodeReported(replace(OTHER, gpus=CARDS[:1])))
    machine.pump()
    machine._nodes = ()
    machine.restart()
    assert machine.service.allocations.get("first").node == "n2"


def test_records_of_an_earlier_version_are_read_and_get_their_card(machine):
    give(machine, "gpu=1")
    machine.store.close()
    _forget_cards(machine._path)
    machine.restart()
    assert usage(machine) == WHOLE
    machine._nodes = ()
    machine.restart()
    assert usage(machine) == WHOLE


def _forget_cards(path: str) -> None:
    """As allocations were stored before they remembered their cards, by a version without a witness."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE allocations SET value = json_remove(value, '$.cards')")
        connection.execute("UPDATE store SET commits = 0")
        connection.commit()
    witness_path(Path(path)).unlink()


def test_a_store_in_which_a_card_has_two_owners_is_not_served(machine):
    give(machine, "gpu=1")
    held = machine.service.state.fleet.ledger["first"]
    machine.store.write(PutAllocation(replace(held, id="second"))).result()
    with pytest.raises(Conflict, match="first, second") as refused:
        machine.restart()
    assert refused.value.code == "card-held"
