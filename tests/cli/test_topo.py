"""`ullage topo` draws a machine, with known and unknown facts."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from ullage.cli.machine import draw_machine
from ullage.cli.main import main
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.topology import Cpu, Device, Kubelet, Link, Path, Room, Scope, Topology, Zone, ZonePolicy
from ullage.wire.node_topology import placed_card, topology_body

GIB = 2**30
MACHINE = Topology(
    zones=(Zone(0, Room(64 * GIB, 64 * GIB)), Zone(1, Room(64 * GIB, 60 * GIB), {2**21: Room(4 * GIB, 4 * GIB)})),
    distances=((10, 21), (21, 10)),
    cpus=tuple(Cpu(cpu, cpu // 4 % 2, cpu // 4 % 2, cpu % 4) for cpu in range(16)),
    devices=(Device("nic", 0, "n0", "0000:1d:00.0", (0,), model="15b3:1021"), Device("example.com/fpga", 0, "f0")),
    links=(
        Link("A", "B", Path.PHB, 18),
        Link("A", "n0", Path.PIX),
        Link("B", "n0", Path.SYS),
        Link("A", "C", Path.SYS),
    ),
    source="sysfs",
)
CARDS = (
    Gpu("A", 0, "NVIDIA H100", zones=(0,), bus_id="0000:1b:00.0"),
    Gpu("B", 1, "NVIDIA H100", zones=(1,), bus_id="0000:9b:00.0"),
    Gpu("C", 2, zones=(), healthy=False),
)
DRAWN = """\
n1: 2 zones, read from sysfs

zone 0   CPUs 0-3,8-11 (4 cores, socket 0)   memory 64Gi
  gpu0   NVIDIA H100    free                      0000:1b:00.0
  nic0   15b3:1021                                0000:1d:00.0

zone 1   CPUs 4-7,12-15 (4 cores, socket 1)   memory 60Gi of 64Gi   2Mi pages
  4Gi
  gpu1   NVIDIA H100    0.25 free, held by train  0000:9b:00.0

zone unknown
  gpu2   model unknown  unhealthy
  fpga0

links   gpu0   gpu1   gpu2
gpu0       -   NV18    SYS
gpu1    NV18      -      ?
gpu2     SYS      ?      -
nic0     PIX    SYS      ?
fpga0      ?      ?      ?

NV#: # bonded NVLinks; PIX: at most one PCIe bridge; SYS: between zones; ?: not
  known

distance   0   1
zone 0    10  21
zone 1    21  10
"""


def drawn(topology, gpus=(), note="", width=None, free=1.0, holders=()):
    node = Node("n1", 8000, GIB, tuple(gpus), topology=topology, topology_note=note)
    return draw_machine(topology_body(node, [placed_card(gpu, free, holders) for gpu in gpus]), width)


def test_a_machine_with_known_and_unknown_facts():
    node = Node("n1", 8000, GIB, CARDS, topology=MACHINE)
    cards = [placed_card(CARDS[0], 1.0), placed_card(CARDS[1], 0.25, ["train"]), placed_card(CARDS[2], 1.0)]
    assert draw_machine(topology_body(node, cards), 80) == DRAWN


@pytest.mark.parametrize("width", [None, 80])
def test_links_of_other_devices_are_not_drawn_where_there_are_no_cards(width: int | None):
    text = draw_machine(topology_body(Node("n1", 8000, GIB, topology=MACHINE), ()), width)
    assert "nic0" in text
    assert "links" not in text


def test_exclusive_cpus_are_listed_in_their_zone():
    node = Node("n1", 8000, GIB, topology=MACHINE)
    lines = draw_machine(topology_body(node, (), {0, 1, 2, 8, 99})).splitlines()
    assert "zone 0   CPUs 0-3,8-11 (4 cores, socket 0; held 0-2,8)   memory 64Gi" in lines
    assert not any("held" in line for line in lines if line.startswith("zone 1"))


def test_without_a_topology_the_cards_are_drawn_with_a_reason():
    text = drawn(None, CARDS[1:2])
    assert text.startswith("n1: its topology is not known; its kernel reports no zones\n\nzone 1\n  gpu1 ")
    assert "links" not in text
    assert "distance" not in text
    assert drawn(None, note="node/online names no zone") == (
        "n1: its topology is not known\nnote: node/online names no zone\n"
    )


def test_a_machine_without_books_shows_no_holders_of_its_cards():
    assert "free" not in drawn(MACHINE, CARDS[:2], free=None)


def test_decisions_of_a_kubelet_and_reserved_cpus_are_shown():
    kubelet = Kubelet(ZonePolicy.RESTRICTED, Scope.POD, static_cpus=True)
    text = drawn(Topology(zones=(Zone(0),), reserved_cpus=frozenset({0, 1}), kubelet=kubelet))
    assert "kubelet: restricted per pod; CPUs static\nreserved: CPUs 0-1\n" in text
    assert "reserved: 2 CPUs\n" in drawn(Topology(zones=(Zone(0),), reserved_count=2))
    assert "zone 0   no CPUs   memory unknown\n" in text


def test_options_of_a_kubelet_that_predictions_ignore_are_shown():
    options = {"align-by-socket": "true", "full-pcpus-only": "true", "distribute-cpus-across-numa": "false"}
    kubelet = Kubelet(ZonePolicy.RESTRICTED, static_cpus=True, cpu_options=options)
    text = drawn(Topology(zones=(Zone(0),), kubelet=kubelet))
    assert "predictions are less exact: the kubelet has enabled align-by-socket\n" in text
    for other in (replace(kubelet, static_cpus=False), replace(kubelet, cpu_options={"full-pcpus-only": "true"})):
        assert "weaker" not in drawn(Topology(zones=(Zone(0),), kubelet=other))


def test_amounts_without_ids_are_drawn_as_amounts():
    text = drawn(Topology(zones=(Zone(0, amounts={"gpu": Room(4, 3), "cpu": Room(16, 14)}),), source="x"))
    assert "zone 0   memory unknown   cpu 14 of 16   gpu 3 of 4\n" in text


def test_unknown_distances_are_shown_as_unknown():
    assert drawn(Topology(zones=(Zone(0), Zone(1)))).endswith("distances between zones: not known\n")


def test_a_device_of_two_zones_stands_in_both():
    text = drawn(MACHINE, [Gpu("A", 0, "X", zones=(0, 1))])
    assert text.count("in zones 0,1") == 2


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_wide_machine_fits_the_width(width):
    cards = [Gpu(f"G{n}", n, "NVIDIA H100 80GB HBM3", zones=(n // 8,), bus_id=f"0000:{n:02x}:00.0") for n in range(16)]
    links = tuple(Link(a.uuid, b.uuid, Path.SYS) for a in cards for b in cards if a.index < b.index)
    cpus = tuple(Cpu(cpu, cpu % 2, cpu % 2, cpu) for cpu in range(256))
    text = drawn(Topology(zones=(Zone(0), Zone(1)), cpus=cpus, links=links), cards, width=width)
    assert max(map(len, text.splitlines())) <= width
    heads = [line.split()[1:] for line in text.splitlines() if line.startswith("links")]
    assert [name for head in heads for name in head] == [f"gpu{n}" for n in range(16)]


@pytest.mark.parametrize("width", [20, 40, 80])
def test_distances_between_many_zones_fit_the_width(width):
    zones = tuple(map(Zone, range(64)))
    text = drawn(Topology(zones, tuple(tuple(10 + abs(a - b) for b in range(64)) for a in range(64))), width=width)
    assert max(map(len, text.splitlines())) <= width
    heads = [line.split()[1:] for line in text.splitlines() if line.startswith("distance")]
    assert [name for head in heads for name in head] == [str(zone) for zone in range(64)]
    rows = [line.split()[2:] for line in text[text.index("distance") :].splitlines() if line.startswith("zone 3 ")]
    assert [int(far) for row in rows for far in row] == [10 + abs(3 - zone) for zone in range(64)]


def test_a_name_from_a_device_cannot_rewrite_the_screen():
    assert "\x1b" not in drawn(MACHINE, [Gpu("A", 0, "\x1b[2J", zones=(0,))])


def test_text_of_a_machine_file_cannot_rewrite_the_screen():
    zone = Zone(0, amounts={"\x1b[2J": Room(1, 1)})
    text = drawn(Topology(zones=(zone,), source="\x1b[2J"), note="node0/cpulist: '\x1b[2J\r0' is not valid")
    assert not set(text) & {"\x1b", "\r"}


def test_this_machine_is_drawn_without_a_server(home, capsys, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert main(["topo", "--local", "-o", "json"]) == 0
    body = json.loads(capsys.readouterr().out)
    if body["source"] is None:
        pytest.skip(f"the kernel here tells of no zones: {body['note']}")
    assert sum(zone["cores"] for zone in body["zones"]) <= (os.cpu_count() or 0)
    assert {card["free"] for card in body["cards"]} <= {None}
    assert main(["topo", "--local"]) == 0
    assert capsys.readouterr().out.startswith(f"{body['node']}: ")


def test_without_a_server_the_error_has_a_hint(home, capsys):
    assert main(["topo"]) == 69
    assert "`ullage topo --local` draws this machine" in capsys.readouterr().err


def test_a_name_and_this_machine_exclude_each_other(home, capsys):
    assert main(["topo", "n1", "--local"]) == 2
    assert "leave NODE out" in capsys.readouterr().err
