"""What the service counts as arrived, before and after a restart."""

from contextlib import contextmanager

import pytest
from tests.lab import a_node
from tests.service.test_restart import Machine

from ullage.core.strategies import strategy_named
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.request import ResourceRequirement


def nothing() -> None:
    pass


def asked(uid: str, text: str = "gpu=1", **claim: object) -> Request:
    return Request(uid, ResourceRequirement.from_string(text), Claim(**claim))


@pytest.fixture
def machine(tmp_path):
    @contextmanager
    def build():
        with Machine(str(tmp_path / "state.db"), a_node(cpu=8, gpus=4)) as lab:
            yield lab

    with build() as lab:
        yield lab


def seen(machine) -> int:
    return machine.service.learning.seen


def test_each_request_counts_once_whether_it_gets_cards_or_not(machine):
    service = machine.service
    for _ in range(3):
        service.allocations.alloc(asked("fits"), nothing)
        service.allocations.alloc(asked("huge", "gpu=8"), nothing)
        service.preemptions.alloc(asked("huge", "gpu=8"), nothing)
        service.allocations.assume(asked("held"), None, nothing)
        service.allocations.simulate(asked("question"))
    assert seen(machine) == 3


def test_each_member_of_a_gang_counts_also_while_it_waits(machine):
    members = [asked(f"w{k}", "gpu=2", gang=GangClaim("g", 3, 3)) for k in range(3)]
    for _ in range(2):
        machine.service.gangs.put("g", members, nothing)
    assert seen(machine) == 3


def test_a_session_counts_when_it_is_opened_and_for_every_executor_beyond(machine):
    machine.session("one", "cpu=1,gpu=1")
    assert seen(machine) == 1
    machine.submit("one", 3)
    assert seen(machine) == machine.held("one") == 3
    machine.session("pair", "cpu=1,gpu=2", batch_size=2)
    assert seen(machine) == 5


def test_a_restart_learns_from_the_ledger_and_from_recorded_events(machine):
    service = machine.service
    service.allocations.alloc(asked("a"), nothing)
    service.allocations.alloc(asked("b"), nothing)
    service.allocations.dealloc("b", None, nothing)
    service.allocations.alloc(asked("huge", "gpu=8"), nothing)
    machine.session("idle", "cpu=1")
    machine.pump()
    assert seen(machine) == 4
    machine.restart()
    assert seen(machine) == 3, "what was refused is not recorded"
    machine.service.allocations.alloc(asked("a"), nothing)
    assert seen(machine) == 3


@pytest.mark.timeout(900)
def test_a_restart_finds_the_estimate_again(machine):
    for number in range(60):
        uid = f"r{number}"
        machine.service.allocations.alloc(asked(uid, "gpu=0.5" if number % 3 else "gpu=1"), nothing)
        machine.service.allocations.dealloc(uid, None, nothing)
    before = machine.service.learning.workload
    assert before.tasks == 42
    machine.pump()
    machine.restart()
    assert machine.service.learning.workload == before
    assert machine.service.state.fleet.strategies["leftover"] is not strategy_named("leftover")
