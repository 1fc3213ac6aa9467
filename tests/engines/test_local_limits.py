"""Memory and cpu of an executor are limited by what the machine offers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.engines.recorder import opened
from ullage.engines.local.cgroup import (
    Cell,
    Confinement,
    Legacy,
    Unified,
    Watching,
    detect,
    executor_directories,
    quota_us,
)
from ullage.model.application import COMMAND
from ullage.model.request import ResourceRequirement
from ullage.service.engine_port import Completed, ExecutorGone, TaskOrder, Unbound

LIMIT = ResourceRequirement.of(cpu=1, memory="128m")
SPACE = 1 << 30


def swallow(amount: int) -> int:
    return len(bytearray(b"x") * amount)


def machine() -> Confinement:
    """Return the strongest layer of this machine, with its directories removed."""
    found = detect(f"ullage-probe-{os.getpid()}")
    for root in found.roots:
        root.rmdir()
    return found


def layers() -> list[Confinement | None]:
    return [None, Watching()] if not isinstance(machine(), Watching) else [Watching()]


@pytest.mark.parametrize("confinement", layers(), ids=lambda layer: "found" if layer is None else "watching")
def test_a_worker_above_its_memory_is_ended_with_the_reason(tmp_path: Path, confinement: Confinement | None) -> None:
    async def main() -> None:
        async with opened(tmp_path / "data", confinement=confinement) as recorder:
            await recorder.enter(requirement=LIMIT)
            assert await recorder.run(1, swallow, 1 << 20) == 1 << 20
            if confinement is None:
                recorder.give(2, swallow, SPACE)
            else:
                recorder.give(2, swallow_and_hold, SPACE)
            gone = await recorder.first(ExecutorGone)
            assert gone.reason == "the worker exceeded its memory limit of 128Mi"

    asyncio.run(main())


@pytest.mark.parametrize("confinement", layers(), ids=lambda layer: "found" if layer is None else "watching")
def test_the_most_memory_of_a_worker_is_known_when_it_leaves_and_when_it_ends(
    tmp_path: Path, confinement: Confinement | None
) -> None:
    async def main() -> None:
        async with opened(tmp_path / "data", confinement=confinement) as recorder:
            await recorder.enter(requirement=ResourceRequirement.of(cpu=1, memory="1g"))
            assert await recorder.run(1, swallow, 200 << 20) == 200 << 20
            recorder.engine.unbind("e")
            left = await recorder.first(Unbound)
            recorder.engine.stop("e", 1.0)
            gone = await recorder.first(ExecutorGone)
            for peak in (left.memory_peak_bytes, gone.memory_peak_bytes):
                assert peak is not None
                assert 200 << 20 <= peak < 1 << 30

    asyncio.run(main())


def swallow_and_hold(amount: int) -> None:
    import time  # noqa: PLC0415  # this runs in a worker

    kept = bytearray(b"x") * amount
    time.sleep(3600 + len(kept))


@pytest.mark.skipif(isinstance(machine(), Watching), reason="this machine has no writable cgroup")
class TestKernelLimits:
    def test_only_the_program_above_its_memory_fails_with_the_reason(self, tmp_path: Path) -> None:
        text = f"x = bytearray(b'x') * {SPACE}"
        data = msgspec.msgpack.encode({"argv": [sys.executable, "-c", text]})

        async def main() -> None:
            async with opened(tmp_path / "data") as recorder:
                await recorder.enter(application=COMMAND, requirement=LIMIT)
                recorder.engine.hand_out("e", [TaskOrder("s", 1, 1, data)])
                outcome = await recorder.outcome(1)
                assert outcome.code == 137
                assert outcome.message.endswith("killed by SIGKILL: it exceeded its memory limit of 128Mi")
                assert recorder.of(ExecutorGone) == []

        asyncio.run(main())

    def test_memory_of_descendants_counts(self, tmp_path: Path) -> None:
        def swallow_elsewhere(text: str) -> int:
            return subprocess.run([sys.executable, "-c", text], check=False, start_new_session=True).returncode

        async def main() -> None:
            async with opened(tmp_path / "data") as recorder:
                await recorder.enter(requirement=LIMIT)
                assert await recorder.run(1, swallow_elsewhere, f"x = bytearray(b'x') * {SPACE}") == -9

        asyncio.run(main())

    def test_the_directories_are_removed_with_the_executor_and_the_engine(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with opened(tmp_path / "data") as recorder:
                await recorder.enter(requirement=LIMIT)
                confinement = recorder.engine._confinement
                assert confinement is not None
                assert [directory.name for directory in executor_directories(list(confinement.roots))] == ["e"] * len(
                    confinement.roots
                )
                recorder.engine.stop("e", 1.0)
                await recorder.first(ExecutorGone)
                assert executor_directories(list(confinement.roots)) == []
            assert not any(root.exists() for root in confinement.roots)

        asyncio.run(main())

    def test_cgroups_of_an_earlier_run_are_swept(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with opened(tmp_path / "data") as recorder:
                confinement = recorder.engine._confinement
                assert confinement is not None
            cell = confinement.confine("old", LIMIT)
            with subprocess.Popen(["sleep", "3600"]) as child:  # noqa: ASYNC220  # it starts at once
                for directory in cell.directories:
                    (directory / "cgroup.procs").write_text(str(child.pid))
                async with opened(tmp_path / "data"):
                    assert child.wait() == -9
                    assert not any(directory.exists() for directory in cell.directories)

        asyncio.run(main())


def test_without_a_memory_request_there_is_no_limit(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "data") as recorder:
            await recorder.enter(requirement=ResourceRequirement.of(cpu=2))
            assert await recorder.run(1, swallow, 256 << 20) == 256 << 20
            assert len(recorder.of(Completed)) == 1

    asyncio.run(main())


def test_the_engine_names_its_layer(tmp_path: Path) -> None:
    async def main() -> str:
        async with opened(tmp_path / "data") as recorder:
            return recorder.engine.layer

    assert asyncio.run(main()).split(":")[0] in {"cgroup v1", "cgroup v2", "watched"}


@pytest.mark.parametrize(("milli", "quota"), [(1000, 100_000), (2500, 250_000), (5, 1000)])
def test_cores_become_a_quota(milli: int, quota: int) -> None:
    assert quota_us(milli) == quota


# --- the choice of a layer, on directories that look like cgroup file systems ---------------------


def fake(tmp_path: Path, cgroup: str, mounts: str) -> Path:
    proc = tmp_path / "proc/self"
    proc.mkdir(parents=True)
    (proc / "cgroup").write_text(cgroup)
    (proc / "mountinfo").write_text(mounts.replace("@", str(tmp_path)))
    return tmp_path / "proc"


def unified(tmp_path: Path, members: str, controllers: str = "cpuset cpu io memory pids") -> tuple[Path, Path]:
    own = tmp_path / "fs/ullage.service"
    own.mkdir(parents=True)
    (own / "cgroup.type").write_text("domain")
    (own / "cgroup.controllers").write_text(controllers)
    (own / "cgroup.subtree_control").write_text("")
    (own / "cgroup.procs").write_text(members)
    return own, fake(tmp_path, "0::/ullage.service\n", "30 23 0:26 / @/fs rw,nosuid - cgroup2 cgroup2 rw\n")


def test_a_delegated_cgroup_is_used_and_the_server_moves_to_a_child(tmp_path: Path) -> None:
    own, proc = unified(tmp_path, f"{os.getpid()}\n")
    found = detect("ullage-1", proc)
    assert isinstance(found, Unified)
    assert found.layer == "cgroup v2: memory and cpu limited by the kernel"
    assert (own / "ullage-server/cgroup.procs").read_text() == str(os.getpid())
    assert (own / "cgroup.subtree_control").read_text() == "+cpu +cpuset +memory"
    cell = found.confine("e", ResourceRequirement.of(2, "1g"))
    assert not (own / "ullage-1/e/cpuset.cpus").exists(), "it shares those of the server"
    assert cell.directories == (own / "ullage-1/e",)
    assert (own / "ullage-1/e/memory.max").read_text() == str(1 << 30)
    assert (own / "ullage-1/e/cpu.max").read_text() == "200000 100000"
    (own / "ullage-1/e/memory.events").write_text("low 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 0\n")
    assert cell.kills() == 1
    found.confine("alone", ResourceRequirement.of(4, "1g"), (0, 1, 2, 8))
    assert (own / "ullage-1/alone/cpuset.cpus").read_text() == "0-2,8"


def test_a_cgroup_shared_with_others_is_not_touched(tmp_path: Path) -> None:
    own, proc = unified(tmp_path, f"{os.getpid()}\n1\n")
    assert isinstance(detect("ullage-1", proc), Watching)
    assert (own / "cgroup.subtree_control").read_text() == ""


def test_a_cgroup_without_the_memory_controller_is_not_used(tmp_path: Path) -> None:
    _, proc = unified(tmp_path, f"{os.getpid()}\n", controllers="cpu pids")
    assert isinstance(detect("ullage-1", proc), Watching)


def test_version_1_is_found_below_the_root_of_its_mount(tmp_path: Path) -> None:
    for name in ("memory", "cpu"):
        (tmp_path / name / "inner").mkdir(parents=True)
    proc = fake(
        tmp_path,
        "4:memory:/docker/abc/inner\n2:cpu,cpuacct:/docker/abc/inner\n0::/\n",
        "35 31 0:32 /docker/abc @/memory rw shared:1 - cgroup cgroup rw,memory\n"
        "32 31 0:29 /docker/abc @/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
    )
    found = detect("ullage-1", proc)
    assert isinstance(found, Legacy)
    assert found.roots == (tmp_path / "memory/inner/ullage-1", tmp_path / "cpu/inner/ullage-1")
    found.confine("e", ResourceRequirement.of(1, "1g"))
    assert (tmp_path / "memory/inner/ullage-1/e/memory.limit_in_bytes").read_text() == str(1 << 30)
    assert (tmp_path / "cpu/inner/ullage-1/e/cpu.cfs_quota_us").read_text() == "100000"


def test_without_cgroups_memory_is_watched(tmp_path: Path) -> None:
    found = detect("ullage-1", tmp_path)
    assert found.layer.startswith("watched")
    assert found.confine("e", LIMIT) == Cell(watched_bytes=128 << 20)
