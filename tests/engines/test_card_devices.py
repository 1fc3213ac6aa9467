"""Cards are closed to the executors that do not hold them: device nodes made by the test stand for cards."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ullage.engines.local.card_devices import CLOSED, OPEN, CardDevices
from ullage.engines.local.cgroup import Cell
from ullage.model.gpu import Gpu

ZERO = os.makedev(1, 5)
FULL = os.makedev(1, 7)
READ = "import sys; open(sys.argv[1], 'rb').read(1)"


@pytest.fixture
def cards(tmp_path: Path) -> tuple[Gpu, ...]:
    """Two cards, whose nodes are those of /dev/zero and /dev/full."""
    paths = []
    for name, device in (("card0", ZERO), ("card1", FULL)):
        path = tmp_path / name
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, device)
            path.open("rb").close()
        except PermissionError:
            pytest.skip("only root can make device nodes, on a file system that has them")
        paths.append(str(path))
    return tuple(Gpu(f"GPU-{index}", index, devices=(path,)) for index, path in enumerate(paths))


@pytest.fixture
def devices(cards: tuple[Gpu, ...]) -> Iterator[CardDevices]:
    found = CardDevices(cards, f"ullage-test-{os.getpid()}")
    if not found.roots:
        pytest.skip(f"{OPEN}, or this process may not write to it")
    yield found
    for root in found.roots:
        root.rmdir()


def can_read(cell: Cell, card: Gpu) -> bool:
    """Whether a process in the cgroups of an executor can read the node of a card."""

    def join() -> None:
        for directory in cell.directories:
            (directory / "cgroup.procs").write_text("0")

    command = [sys.executable, "-c", READ, *card.devices]
    done = subprocess.run(command, preexec_fn=join, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "PermissionError" in done.stderr, done.stderr
    return done.returncode == 0


def test_an_executor_opens_the_cards_that_it_holds_and_no_others(devices: CardDevices, cards: tuple[Gpu, ...]) -> None:
    assert devices.layer == CLOSED
    for held in ((), cards[:1], cards[1:], cards):
        cell = devices.close(Cell(), "e1", held)
        try:
            assert [can_read(cell, card) for card in cards] == [card in held for card in cards]
        finally:
            assert cell.remove()


def test_a_node_of_nvidia_that_nobody_named_is_closed_too(devices: CardDevices, tmp_path: Path) -> None:
    folder = tmp_path / "driver/nvidia/gpus/0000:01:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text("Model: A100\nDevice Minor: \t 3\n")
    dev = tmp_path / "dev"
    dev.mkdir()
    for number, device in ((3, ZERO), (4, FULL)):
        os.mknod(dev / f"nvidia{number}", stat.S_IFCHR | 0o666, device)
    card = Gpu("GPU-a", 0, bus_id="0000:01:00.0")
    known = CardDevices((card,), "unused", proc=tmp_path, dev=dev)
    known.roots = devices.roots
    other = Gpu("GPU-other", 1, devices=(str(dev / "nvidia4"),))
    mine = Gpu("GPU-a", 0, devices=(str(dev / "nvidia3"),))
    for held, readable in (((card,), [True, False]), ((), [False, False])):
        cell = known.close(Cell(), "e2", held)
        try:
            assert [can_read(cell, mine), can_read(cell, other)] == readable
        finally:
            assert cell.remove()


def test_nothing_unknown_is_closed_to_an_executor_whose_card_has_no_known_node(
    devices: CardDevices, cards: tuple[Gpu, ...]
) -> None:
    declared = Gpu("GPU-declared", 2)
    cell = devices.close(Cell(), "e3", (declared,))
    try:
        assert not can_read(cell, cards[0])
    finally:
        assert cell.remove()


def test_without_the_controller_it_is_said_that_cards_are_open(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("0::/\n")
    (tmp_path / "self/mountinfo").write_text("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    assert CardDevices((Gpu("GPU-0", 0),), "name", proc=tmp_path).layer == OPEN
    assert CardDevices((), "name", proc=tmp_path).layer == ""
