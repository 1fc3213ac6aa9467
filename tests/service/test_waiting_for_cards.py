"""Who waits for cards is tried again when something is freed that could help, whoever held it."""

from __future__ import annotations

from dataclasses import replace

from tests.lab import Lab

from ullage.core.admitting.gang_state import GangPhase
from ullage.model.allocation import Allocation
from ullage.model.application import DELAY_RELEASE_S
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.nomination import Nomination
from ullage.model.quota import Quota
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement

GIB = 1 << 30
CARDS = tuple(Gpu(f"GPU-n1-{index}", index, vram_bytes=40 * GIB, compute_gflops=100_000) for index in range(2))
NODE = Node("n1", 8000, 64 * GIB, CARDS)


def nobody() -> None:
    """Nobody waits for the answer."""


def member(uid: str, text: str = "gpu=1") -> Request:
    return Request(uid, ResourceRequirement.from_string(text), Claim(gang=GangClaim("g", 2, 2)))


def ask(uid: str, text: str = "gpu=2", **claim: object) -> Request:
    return Request(uid, ResourceRequirement.from_string(text), Claim(**claim))


def ready(lab: Lab) -> list[str]:
    return [event.data["uid"] for event in lab.service.events.recent if event.kind == "allocation.ready"]


def nominated(lab: Lab) -> None:
    """A request for both cards that two others give way to."""
    for uid in ("low-0", "low-1"):
        lab.service.allocations.alloc(ask(uid, "gpu=1", namespace=uid), nobody)
    answer = lab.service.preemptions.alloc(ask("high", priority=10, namespace="team"), nobody)
    assert isinstance(answer, Nomination)
    lab.pump()


def free(lab: Lab, *uids: str) -> None:
    for uid in uids:
        lab.service.allocations.dealloc(uid, None, nobody)
    lab.pump()


def gang_phase(lab: Lab) -> GangPhase:
    return lab.service.gangs.status("g").phase


def test_a_gang_gets_the_card_that_a_session_leaves():
    with Lab(NODE) as lab:
        lab.session("ann", "cpu=1,gpu=1", tasks=1)
        lab.service.gangs.put("g", [member("a"), member("b")], nobody)
        lab.pump()
        assert gang_phase(lab) is GangPhase.WAITING
        lab.finish("ann")
        lab.service.sessions.close("ann", nobody)
        while lab.executors:
            lab.pass_time(DELAY_RELEASE_S)
        assert gang_phase(lab) is GangPhase.RUNNING


def test_a_gang_gets_its_cards_once_its_quota_lets_it():
    with Lab(NODE) as lab:
        lab.service.quotas.put("default", Quota(max_workers=1), nobody)
        lab.service.gangs.put("g", [member("a"), member("b")], nobody)
        lab.pump()
        assert gang_phase(lab) is GangPhase.WAITING
        lab.service.quotas.put("default", Quota(max_workers=2), nobody)
        lab.pump()
        assert gang_phase(lab) is GangPhase.RUNNING


def test_members_that_share_a_card_get_it_once_it_has_room_for_both():
    with Lab(replace(NODE, gpus=CARDS[:1])) as lab:
        lab.service.allocations.alloc(ask("other", "vram=20g"), nobody)
        lab.service.gangs.put("g", [member("a", "vram=15g"), member("b", "vram=15g")], nobody)
        lab.pump()
        assert gang_phase(lab) is GangPhase.WAITING
        free(lab, "other")
        assert gang_phase(lab) is GangPhase.RUNNING


def test_a_gang_that_waits_is_judged_by_the_books_after_a_younger_one_took_its_cards():
    def gang(key: str, size: int) -> list[Request]:
        claim, one = GangClaim(key, size, size), ResourceRequirement.from_string("gpu=1")
        return [Request(f"{key}-{number}", one, Claim(gang=claim)) for number in range(size)]

    with Lab(NODE) as lab:
        lab.service.quotas.put("default", Quota(max_workers=1), nobody)
        found = []
        for key, size in (("old", 2), ("young", 1)):
            lab.service.gangs.put(key, gang(key, size), nobody)
            lab.pump()
            found.append([answer.code for answer in lab.service.gangs.status("old").answers.values()])

        assert found == [[Code.GANG_ROOM, Code.QUOTA_TOTAL_WORKERS], [Code.GANG_ROOM, Code.GANG_ROOM]]


def test_a_nominated_request_is_reported_ready_once_when_the_last_victim_is_gone():
    with Lab(NODE) as lab:
        nominated(lab)
        free(lab, "low-0")
        assert ready(lab) == []
        free(lab, "low-1")
        lab.pass_time(1)
        assert ready(lab) == ["high"]
        placed = lab.service.preemptions.alloc(ask("high", priority=10, namespace="team"), nobody)
        assert isinstance(placed, Allocation)
        lab.pump()
        assert ready(lab) == ["high"]


def test_a_request_that_also_waits_for_a_quota_is_reported_ready_when_its_namespace_frees_something():
    other = Node("n2", 8000, 64 * GIB, (Gpu("GPU-n2-0", 0, model="small"),))
    with Lab(NODE, other) as lab:
        lab.service.allocations.alloc(ask("mate", "gpu=1,gpu_model=small", namespace="team"), nobody)
        nominated(lab)
        lab.service.quotas.put("team", Quota(max_workers=1), nobody)
        free(lab, "low-0", "low-1")
        assert ready(lab) == []
        free(lab, "mate")
        assert ready(lab) == ["high"]


def test_a_restart_tells_again():
    with Lab(NODE) as lab:
        nominated(lab)
        nomination = lab.service.preemptions.nominations()[0]
        with Lab(NODE) as again:
            again.service._nominated.put(nomination)
            again.service._changed(urgent=True)
            again.pump()
            assert ready(again) == ["high"]
