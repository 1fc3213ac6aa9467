"""Unsatisfiable settings are named, and the server still starts."""

import pytest

from ullage.bootstrap.settings import NodeSection, QueueSection, Settings
from ullage.bootstrap.settings_check import unsatisfiable
from ullage.engines.local.sharing import Unenforced
from ullage.model.gpu import Gpu
from ullage.model.node import Node


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Settings(resreq="cpu=4,mem=8g,gpu=1"), []),
        (
            Settings(resreq="cpu=5,gpu=2"),
            [
                "resreq: cpu 5 is more than this machine has for work (4): sessions need their own",
                "resreq: gpu 2 is more than this machine has for work (1): sessions need their own",
            ],
        ),
        (
            Settings(node=NodeSection(reserved="cpu=4")),
            ["node.reserved: all cpu of this machine (4) is reserved: no work can run"],
        ),
        (
            Settings(node=NodeSection(reserved="mem=9g")),
            ["node.reserved: all memory of this machine (8Gi) is reserved: no work can run"],
        ),
        (
            Settings(queues={"lab": QueueSection(guarantee="gpu=2"), "rest": QueueSection(guarantee="cpu=4")}),
            ["queue lab is guaranteed gpu=2; all nodes together have gpu=1"],
        ),
    ],
)
def test_an_unsatisfiable_setting_is_named(settings, message):
    machine = settings.machine(Unenforced())
    node = Node("n", cpu_milli=4000, memory_bytes=8 << 30, gpus=(Gpu("GPU-a", 0),), reserved=machine.reserved)
    assert unsatisfiable(settings, machine, node) == message
