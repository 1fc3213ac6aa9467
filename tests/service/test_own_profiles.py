"""Partitions of a model that only the operator's own table knows."""

from __future__ import annotations

from dataclasses import replace

from tests.lab import Lab

from ullage.core.placing.decision import Refusal
from ullage.model.allocation import Slot
from ullage.model.claim import Claim, Request
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.profile_table import load_profiles
from ullage.model.profiles import SHIPPED
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement

GIB = 1 << 30
CARD = Gpu("GPU-0", 0, model="Lab card", vendor="NVIDIA", vram_bytes=16 * GIB, compute_gflops=100_000)
NODE = Node("n1", 8000, 64 * GIB, (CARD,))
OWN = load_profiles("""
[[model]]
name = "Lab card"
vendor = "NVIDIA"
max_placement_slots = 2
[[model.templates]]
name = "half"
memory_gigabytes = 8
compute_percent = 50
max_partition = 2
placement_limit = [0, 1]
placement_offset = 1
""")


def ask(uid: str) -> Request:
    return Request(uid, ResourceRequirement.from_string("vram=8g,isolation=partitioned"), Claim())


def nobody() -> None:
    """Nobody waits for the answer."""


def test_a_partition_follows_the_profiles_of_the_operator_also_after_the_node_changed():
    with Lab(NODE, profiles=SHIPPED.overridden_by(OWN.entries)) as lab:
        allocations = lab.service.allocations
        assert not isinstance(allocations.alloc(ask("a"), nobody), Refusal)
        lab.service.nodes.heartbeat(replace(NODE, labels={"rack": "1"}))
        allocations.alloc(ask("b"), nobody)
        slots = [allocation.charges[0].slot for allocation in allocations.all()]
        assert slots == [Slot("half", 0, 1), Slot("half", 1, 2)]


def test_without_the_table_the_model_has_no_partitions():
    with Lab(NODE) as lab:
        refused = lab.service.allocations.alloc(ask("a"), nobody)
        assert isinstance(refused, Refusal)
        assert refused.code is Code.NO_PARTITION_TEMPLATE


def test_a_session_deserves_its_partition_with_a_request_on_the_same_card():
    with Lab(NODE, profiles=SHIPPED.overridden_by(OWN.entries)) as lab:
        lab.service.allocations.alloc(ask("a"), nobody)
        lab.session("s", "vram=8g,isolation=partitioned", tasks=1)
        assert lab.service.state.session("s").deserved == 1
