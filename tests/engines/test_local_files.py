"""Files that user code can grow, remove or replace."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path

import pytest

from tests.engines.recorder import NODE, Recorder, eventually, opened
from ullage.engines.local.ended_logs import EndedLogs
from ullage.engines.local.engine import LocalEngine
from ullage.service.engine_port import ExecutorGone, Registered


def remove_the_working_directory() -> None:
    shutil.rmtree(Path.cwd())


def replace_the_working_directory_by_a_link() -> None:
    here = Path.cwd()
    here.rmdir()
    here.symlink_to("/")


def forbid_to_remove_the_working_directory() -> None:
    Path("deep").mkdir()
    Path("deep/file").touch()
    Path("deep").chmod(0o500)


def remove_all_working_directories() -> None:
    shutil.rmtree(Path.cwd().parent)


def replace_the_own_log_by_a_fifo() -> None:
    log = Path.cwd().parent.parent / "logs/executors/e.err"
    log.unlink()
    os.mkfifo(log)


def replace_the_own_cache_by_a_directory() -> None:
    (Path.cwd().parent.parent / "run/hami/e.cache/deep").mkdir(parents=True)


@pytest.mark.parametrize(
    "damage",
    [
        remove_the_working_directory,
        replace_the_working_directory_by_a_link,
        forbid_to_remove_the_working_directory,
        remove_all_working_directories,
        replace_the_own_log_by_a_fifo,
        replace_the_own_cache_by_a_directory,
    ],
    ids=lambda damage: damage.__name__,
)
def test_an_executor_ends_after_its_task_damaged_its_files(tmp_path: Path, damage: Callable[[], None]) -> None:
    async def main() -> None:
        async with opened(tmp_path / "data") as recorder:
            await recorder.enter()
            recorder.give(1, damage)
            await recorder.outcome(1)
            recorder.give(2, os._exit, 3)
            assert "exit code 3" in (await recorder.first(ExecutorGone)).reason
            recorder.launch("next")
            await recorder.first(Registered, 2)
        async with opened(tmp_path / "data"):
            pass

    asyncio.run(main())
    assert Path("/usr").is_dir()
    assert not list((tmp_path / "data/work").iterdir())
    assert not list((tmp_path / "data/run/hami").iterdir())


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_link(path: Path) -> None:
    path.symlink_to("/dev/full")


@pytest.mark.parametrize("make", [make_fifo, make_link, Path.mkdir], ids=["fifo", "link", "directory"])
@pytest.mark.parametrize("name", ["logs/supervisor.err", "run/cgroups", "run/executors.sock", "run/python/ullage"])
def test_an_engine_replaces_foreign_files_at_its_own_paths(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    place = tmp_path / "data" / name
    place.parent.mkdir(parents=True)
    make(place)

    async def main() -> None:
        async with opened(tmp_path / "data") as recorder:
            await recorder.enter()

    asyncio.run(main())
    assert Path("/dev/full").is_char_device()


def test_a_worker_prints_into_pipes_and_its_last_output_is_complete(tmp_path: Path) -> None:
    def print_much_and_end() -> None:
        assert all(Path(f"/proc/self/fd/{number}").resolve().name.startswith("pipe:") for number in (1, 2))
        os.write(2, b"x" * 60_000 + b"\nlast words\n")
        os._exit(1)

    async def main() -> None:
        async with opened(tmp_path / "data") as recorder:
            await recorder.enter()
            recorder.give(1, print_much_and_end)
            assert (await recorder.first(ExecutorGone)).reason.endswith("the end of its standard error:\nlast words")

    asyncio.run(main())
    assert (tmp_path / "data/logs/executors/e.err").stat().st_size == 60_012


def test_an_executor_that_prints_without_end_blocks_no_other(tmp_path: Path) -> None:
    def print_for_ever() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            os.write(1, b"y\n" * 4096)

    async def main() -> None:
        async with opened(tmp_path / "data") as recorder:
            await recorder.enter("loud")
            recorder.give(1, print_for_ever, name="loud")
            await eventually(lambda: (tmp_path / "data/logs/executors/loud.out").stat().st_size > 1 << 20)
            recorder.launch("quiet")
            await recorder.first(Registered, 2)
            recorder.engine.stop("loud", 0.2)
            assert (await recorder.first(ExecutorGone)).reason == "stopped"

    asyncio.run(main())


def test_logs_of_deleted_sessions_are_removed_and_others_stay(tmp_path: Path) -> None:
    logs = tmp_path / "data/logs/tasks"
    for name in ("a@1", "b@2", "c@3"):
        (logs / name).mkdir(parents=True)
        (logs / name / "1.out").write_text("x")
    (logs / "d@4").symlink_to("/usr")

    async def main() -> None:
        engine = LocalEngine(tmp_path / "data", NODE, "server")
        await engine.open(Recorder(engine))
        try:
            engine.forget("a@1")
            engine.forget("absent@9")
            await eventually(lambda: not (logs / "a@1").exists())
            engine.keep_logs({"b@2"})
        finally:
            await engine.close()

    asyncio.run(main())
    assert [entry.name for entry in logs.iterdir()] == ["b@2"]
    assert Path("/usr").is_dir()
    assert not list((tmp_path / "data/work").iterdir())


def test_the_oldest_logs_of_ended_executors_are_removed_first(tmp_path: Path) -> None:
    def printed(name: str, size: int) -> None:
        (tmp_path / f"{name}.out").write_bytes(b"x" * size)
        (tmp_path / f"{name}.err").touch()

    ended = EndedLogs(tmp_path, most_bytes=100, most_executors=3)
    surplus = []
    for name in "abcde":
        printed(name, 10)
        surplus += ended.add(name)
    assert [path.name for path in surplus] == ["a.out", "a.err", "b.out", "b.err"]
    assert not list(tmp_path.glob("*.err")), "empty logs are removed at once"
    ended.reopen("c")
    printed("f", 95)
    assert [path.name for path in ended.add("f")] == ["d.out", "d.err", "e.out", "e.err"]


def test_surplus_logs_of_earlier_runs_are_removed_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = tmp_path / "data/logs/executors"
    logs.mkdir(parents=True)
    for age, name in enumerate(("new", "middle", "old")):
        (logs / f"{name}.out").write_bytes(b"x" * 10)
        os.utime(logs / f"{name}.out", (1000 - age, 1000 - age))
    monkeypatch.setattr(EndedLogs, "__init__", partialmethod(EndedLogs.__init__, most_executors=2))

    async def main() -> None:
        async with opened(tmp_path / "data"):
            pass

    asyncio.run(main())
    assert sorted(entry.name for entry in logs.iterdir()) == ["middle.out", "new.out"]
