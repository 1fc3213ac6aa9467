"""Unsatisfiable settings are named, and the server still starts."""

import pytest

from ullage.bootstrap.listener import listen
from ullage.bootstrap.settings import NodeSection, QueueSection, Settings, read_settings
from ullage.bootstrap.settings_check import check_here, unsatisfiable
from ullage.bootstrap.settings_list import list_settings
from ullage.bootstrap.user_settings import QueueUsersSection, UsersSection
from ullage.engines.local.sharing import Unenforced
from ullage.model.error import InvalidRequest
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
        (
            Settings(users=UsersSection(roles={"nobody-here": "admin", "root": "admin"}, groups={"no-group": "user"})),
            [
                "users.roles: this machine has no user nobody-here",
                "users.groups: this machine has no group no-group",
            ],
        ),
        (
            Settings(
                queues={"q": QueueSection()},
                users=UsersSection(queues={"q": QueueUsersSection(users=["by-token"], groups=["no-group"])}),
            ),
            ["users.queues.q.groups: this machine has no group no-group"],
        ),
        (
            Settings(
                queues={"lab": QueueSection()},
                users=UsersSection(queues={"labb": QueueUsersSection(), "default": QueueUsersSection()}),
            ),
            [
                (
                    "users.queues.labb: did you mean lab? [queues] has no queue labb: "
                    "it closes one only if `ullage queues set` makes it"
                )
            ],
        ),
    ],
)
def test_an_unsatisfiable_setting_is_named(settings, message):
    machine = settings.machine(Unenforced())
    node = Node("n", cpu_milli=4000, memory_bytes=8 << 30, gpus=(Gpu("GPU-a", 0),), reserved=machine.reserved)
    assert unsatisfiable(settings, machine, node) == message


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('[server]\nhost = ""', "server.host"),
        ("[server]\nport = 70000", "server.port"),
        ('[server]\nstorage = "postgres://x"', "server.storage"),
        ('[server]\nengine = "slurm"', "server.engine"),
        ('[server]\ncert = "/nonexistent"', "server.cert"),
        ('[server]\nnames = [""]', "server.names"),
        ('[server]\nnames = ["https://gpu-box/"]', "server.names"),
        ('[server]\nnotify_hosts = [" "]', "server.notify_hosts"),
        ('[node]\nname = "a b"', "node.name"),
        ("[node]\ncpu = -3", "node.cpu"),
        ("[node]\ngpus = -1", "node.gpus"),
        ('[node]\nmemory = "lots"', "node.memory"),
        ("[node]\nmax_executors = 0", "node.max_executors"),
        ('[node]\nsharing = "hami"', "node.hami_library"),
        ('[[node.card]]\nvram = "0"', "node.card.vram"),
        ('[policy]\norder = "fifo2"', "policy.order"),
        ("[policy]\nmost_grace_s = -1", "policy.most_grace_s"),
        ("[queues.a]\nweight = 0", "queues.a"),
        ("[history]\nrows = -1", "history.rows"),
        ('[fair_share]\nhalf_life = "60d"', "fair_share.half_life"),
        ('[users]\nsocket = "run/ullage"', "users.socket"),
        ('[users.roles]\nolga = "boss"', "users.roles.olga"),
        ('profiles = ["nosuch.toml"]', "profiles"),
    ],
)
def test_a_value_that_stops_a_start_is_refused_wherever_settings_are_checked(tmp_path, text, field):
    file = tmp_path / "ullage.toml"
    file.write_text(text)
    for check in (lambda: check_here(read_settings(file), {}), lambda: list_settings(file, {}, {})):
        with pytest.raises(InvalidRequest) as caught:
            check()
        assert caught.value.field == field


def test_an_empty_address_never_listens_on_all_addresses():
    with pytest.raises(InvalidRequest, match=r"0\.0\.0\.0 for all"):
        listen("", 0, "")
