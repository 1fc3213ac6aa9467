"""Cards are closed to the executors that do not hold them: device nodes made by the test stand for cards."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ullage.engines.local.card_devices import CLOSED, CardDevices, Closer, find_closer
from ullage.engines.local.cgroup import Cell, Unified, Watching
from ullage.engines.local.device_program import attach
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


class Bench:
    """A way to close devices, and cells as the limits of executors make them."""

    def __init__(self, closer: Closer, directory: Path | None) -> None:
        self.closer, self._directory = closer, directory

    def cell(self, executor: str) -> Cell:
        if self._directory is None:
            return Cell()
        (self._directory / executor).mkdir()
        return Cell((self._directory / executor,))


@pytest.fixture(params=["v1", "v2"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    name = f"ullage-test-{os.getpid()}"
    if request.param == "v1":
        closer, why = find_closer(name, Watching())
        if closer is None:
            pytest.skip(why)
        yield Bench(closer, None)
        for root in closer.roots:
            root.rmdir()
        return
    mounted = tmp_path / "cgroup2"
    mounted.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "cgroup2", "none", str(mounted)], capture_output=True, text=True, check=False
    )
    if mount.returncode:
        pytest.skip(f"cgroup v2 cannot be mounted here: {mount.stderr.strip()}")
    root = mounted / name
    try:
        root.mkdir()
        closer, why = find_closer(name, Unified(root, frozenset({"memory"})), proc=tmp_path)
        if closer is None:
            pytest.skip(why)
        yield Bench(closer, root)
    finally:
        root.rmdir()
        subprocess.run(["umount", str(mounted)], check=True)


def can_read(cell: Cell, card: Gpu) -> bool:
    """Whether a process in the cgroups of an executor can read the node of a card."""

    def join() -> None:
        for directory in cell.directories:
            (directory / "cgroup.procs").write_text("0")

    command = [sys.executable, "-c", READ, *card.devices]
    done = subprocess.run(command, preexec_fn=join, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "PermissionError" in done.stderr, done.stderr
    return done.returncode == 0


def test_an_executor_opens_the_cards_that_it_holds_and_no_others(bench: Bench, cards: tuple[Gpu, ...]) -> None:
    devices = CardDevices(cards, bench.closer)
    assert devices.layer == CLOSED
    for held in ((), cards[:1], cards[1:], cards):
        cell = devices.close(bench.cell("e1"), "e1", held)
        try:
            assert [can_read(cell, card) for card in cards] == [card in held for card in cards]
        finally:
            assert cell.remove()


def test_a_node_of_nvidia_that_nobody_named_is_closed_too(bench: Bench, cards: tuple[Gpu, ...], tmp_path: Path) -> None:
    assert cards, "this process can make device nodes"
    folder = tmp_path / "driver/nvidia/gpus/0000:01:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text("Model: A100\nDevice Minor: \t 3\n")
    dev = tmp_path / "dev"
    dev.mkdir()
    for number, device in ((3, ZERO), (4, FULL)):
        os.mknod(dev / f"nvidia{number}", stat.S_IFCHR | 0o666, device)
    card = Gpu("GPU-a", 0, bus_id="0000:01:00.0")
    known = CardDevices((card,), bench.closer, proc=tmp_path, dev=dev)
    other = Gpu("GPU-other", 1, devices=(str(dev / "nvidia4"),))
    mine = Gpu("GPU-a", 0, devices=(str(dev / "nvidia3"),))
    for held, readable in (((card,), [True, False]), ((), [False, False])):
        cell = known.close(bench.cell("e2"), "e2", held)
        try:
            assert [can_read(cell, mine), can_read(cell, other)] == readable
        finally:
            assert cell.remove()


def test_nothing_unknown_is_closed_to_an_executor_whose_card_has_no_known_node(
    bench: Bench, cards: tuple[Gpu, ...]
) -> None:
    declared = Gpu("GPU-declared", 2)
    cell = CardDevices(cards, bench.closer).close(bench.cell("e3"), "e3", (declared,))
    try:
        assert not can_read(cell, cards[0])
    finally:
        assert cell.remove()


def test_without_a_way_it_is_said_that_cards_are_open_and_why(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("0::/\n")
    (tmp_path / "self/mountinfo").write_text("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    closer, why = find_closer("name", Watching(), proc=tmp_path)
    assert closer is None
    devices = CardDevices((Gpu("GPU-0", 0),), closer, why)
    assert devices.layer == f"cards are not closed: {why}"
    assert "cgroup v1" in why
    assert "cgroup v2" in why
    assert devices.close(Cell(), "e", ()) == Cell()
    assert CardDevices((), None).layer == ""


def test_a_directory_that_is_no_cgroup_is_refused_with_what_the_program_needs(tmp_path: Path) -> None:
    closer, why = find_closer("name", Unified(tmp_path, frozenset({"memory"})), proc=tmp_path)
    assert closer is None
    assert "an eBPF program on cgroup v2 needs CAP_BPF and CAP_NET_ADMIN" in why
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match=r"."):
        attach(tmp_path, [])
