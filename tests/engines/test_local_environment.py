"""The environment and the command line of a worker."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.engines.recorder import opened
from ullage.engines.local.environment import expand, visible_devices, worker_command, worker_environment
from ullage.engines.local.home import Home
from ullage.engines.local.sharing import Unenforced
from ullage.model.allocation import Charge, Slot
from ullage.model.application import FUNCTION, Application
from ullage.model.gpu import Gpu
from ullage.model.part import Isolation
from ullage.model.request import ResourceRequirement
from ullage.model.session import Setup
from ullage.service.engine_port import BindOrder, ExecutorBound, ExecutorGone, LaunchOrder, Registered

REAL = (Gpu("GPU-bbb", 1), Gpu("GPU-aaa", 0))
DECLARED = (Gpu("declared-3", 3), Gpu("declared-1", 1))


def environment() -> dict[str, str]:
    return dict(os.environ)


def order(application: Application, setup: Setup = Setup()) -> LaunchOrder:
    return LaunchOrder("e", "here", application, setup, ResourceRequirement.of(cpu=1))


def test_the_environment_is_exactly_this(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("LC_TIME", "C.UTF-8")
    monkeypatch.setenv("HOME", "/home/of/the/server")
    for secret in ("ULLAGE_TOKEN", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "LD_PRELOAD", "PYTHONPATH", "VIRTUAL_ENV"):
        monkeypatch.setenv(secret, "not for workers")

    async def main() -> dict[str, str]:
        application = Application("function", environment={"MODE": "application", "SIZE": "3", "ULLAGE_NODE": "forged"})
        setup = Setup(environment={"MODE": "session"})
        async with opened(tmp_path / "data") as recorder:
            await recorder.enter("e", application, setup=setup, gpus=REAL, requirement=ResourceRequirement.of(2, 0, 2))
            seen: dict[str, str] = await recorder.run(1, environment)
            return seen

    seen = asyncio.run(main())
    assert len(seen.pop("ULLAGE_HOME_ID")) == 16
    assert seen == {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "LC_TIME": "C.UTF-8",
        "HOME": "/home/of/the/server",
        "MODE": "session",
        "SIZE": "3",
        "OMP_NUM_THREADS": "2",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "GPU-bbb,GPU-aaa",
        "NVIDIA_VISIBLE_DEVICES": "GPU-bbb,GPU-aaa",
        "ULLAGE_EXECUTOR": "e",
        "ULLAGE_GPU_ENFORCED": "none",
        "ULLAGE_GPU_FRACTION": "1,1",
        "ULLAGE_GPU_GFLOPS": ",",
        "ULLAGE_GPU_VRAM_BYTES": ",",
        "ULLAGE_HOME": str(tmp_path / "data"),
        "ULLAGE_NODE": "here",
        "ULLAGE_SERVER_ID": "server",
        "ULLAGE_TASK_LOGS": str(tmp_path / "data/logs/tasks"),
        "ULLAGE_TERMINAL_SOCKET": str(tmp_path / "data/run/terminals.sock"),
        "ULLAGE_WORKER_SOCKET": str(tmp_path / "data/run/executors.sock"),
    }


def test_without_a_card_none_is_visible(tmp_path: Path) -> None:
    async def main() -> dict[str, str]:
        async with opened(tmp_path / "data") as recorder:
            await recorder.enter(setup=Setup(environment={"OMP_NUM_THREADS": "7", "CUDA_VISIBLE_DEVICES": "0"}))
            seen: dict[str, str] = await recorder.run(1, environment)
            return seen

    seen = asyncio.run(main())
    assert (seen["CUDA_VISIBLE_DEVICES"], seen["NVIDIA_VISIBLE_DEVICES"]) == ("", "void")
    assert seen["OMP_NUM_THREADS"] == "7"


@pytest.mark.parametrize(
    ("gpus", "text"),
    [((), ""), (REAL, "GPU-bbb,GPU-aaa"), (DECLARED, "3,1"), ((REAL[0], DECLARED[0]), "1,3")],
)
def test_cards_are_named_by_uuid_or_all_by_index(gpus: tuple[Gpu, ...], text: str) -> None:
    assert visible_devices(gpus) == text


def test_a_slice_is_named_by_its_uuid_and_enforced_by_its_card(tmp_path: Path) -> None:
    card = Gpu("GPU-aaa", 0, vram_bytes=80 * 2**30, slice_uuids=((72, "MIG-1"), (80, "MIG-2")))
    part = Charge(140_000, 10 * 2**30, Isolation.PARTITIONED, Slot("1g.10gb", 80, 81))
    asked = ResourceRequirement.from_string("gpu=1,partition=1g.10gb")
    given = LaunchOrder("e", "here", Application("mine"), Setup(), asked, gpus=(card,), charges=(part,))
    found = worker_environment(given, Home(tmp_path / "data"), {}, Unenforced(), server_id="s", secret="x")
    shown = {key: found[key] for key in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ULLAGE_GPU_ENFORCED")}
    assert list(shown.values()) == ["MIG-2", "MIG-2", "mig"]
    with pytest.raises(ValueError, match="has no slice"):
        visible_devices((replace(card, slice_uuids=()),), (part,))


def test_the_command_is_split_and_then_expanded() -> None:
    application = Application("mine", command="'/opt/my tools/run' -m $MODULE", arguments=("${WORDS}", "$UNSET", "a b"))
    words = worker_command(order(application), {"MODULE": "some module", "WORDS": "x y"})
    assert words == ["/opt/my tools/run", "-m", "some module", "x y", "$UNSET", "a b"]


def test_the_built_in_worker_runs_under_the_interpreter_asked_for() -> None:
    assert worker_command(order(FUNCTION), {})[:2] == [sys.executable, "-m"]
    assert worker_command(order(FUNCTION, Setup(python="/opt/python")), {})[0] == "/opt/python"


@pytest.mark.parametrize("command", ["'open", "   "])
def test_a_command_without_words_is_refused(command: str) -> None:
    with pytest.raises(ValueError, match=r"quotation|blank"):
        worker_command(order(Application("mine", command=command)), {})


def test_expansion_is_not_repeated() -> None:
    assert expand("$A-${B}-$$A-${}", {"A": "$B", "B": "b"}) == "$B-b-$$B-${}"


def test_another_interpreter_gets_only_this_package(tmp_path: Path) -> None:
    other = tmp_path / "bin/python"
    other.parent.mkdir()
    other.symlink_to(sys.executable)  # the base interpreter by another name: it has no site-packages of ours

    async def main() -> str:
        async with opened(tmp_path / "data") as recorder:
            recorder.launch(setup=Setup(python=str(other), environment={"PYTHONPATH": "/users/own"}))
            await recorder.until(lambda: bool([*recorder.of(Registered), *recorder.of(ExecutorGone)]))
            return recorder.of(ExecutorGone)[0].reason if recorder.of(ExecutorGone) else ""

    reason = asyncio.run(main())
    assert reason == "" or "No module named 'msgspec'" in reason
    assert [entry.name for entry in (tmp_path / "data/run/python").iterdir()] == ["ullage"]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_worker_inherits_nothing_that_is_open(
    tmp_path: Path, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    def descriptors() -> list[str]:
        return sorted(
            str(link.readlink()).split(":")[0] for link in Path("/proc/self/fd").iterdir() if link.is_symlink()
        )

    async def main() -> None:
        async with opened(tmp_path / "data") as recorder:
            await recorder.enter()
            seen = await recorder.run(1, descriptors)
            # Its three, the connection, the watcher's eventfd, and two pipes and a socket to the recorder; the open
            # directory is gone when its link is read.
            assert [name for name in seen if not name.startswith("/proc")] == sorted(
                ["/dev/null", *["pipe"] * 4, *["socket"] * 2, "anon_inode"]
            )

    run(main())


def test_the_working_directory_is_private_and_removed_with_the_executor(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "data") as recorder:
            await recorder.enter()
            directory = tmp_path / "data/work/e"
            assert await recorder.run(1, os.getcwd) == str(directory)
            assert directory.stat().st_mode & 0o777 == 0o700
            await recorder.run(2, lambda: Path("left").write_text("behind"))
            recorder.engine.stop("e", 1.0)
            await recorder.first(ExecutorGone)
            assert not directory.exists()
        assert list((tmp_path / "data/work").iterdir()) == []

    asyncio.run(main())


def test_the_directory_of_the_session_overrides_that_of_the_application(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for directory in (ours, theirs):
        directory.mkdir()

    async def main() -> None:
        application = Application("function", working_directory=str(theirs))
        async with opened(tmp_path / "data") as recorder:
            await recorder.enter("a", application)
            await recorder.enter("b", application, setup=Setup(working_directory=str(ours)))
            assert await recorder.run(1, os.getcwd, name="a") == str(theirs)
            assert await recorder.run(2, os.getcwd, name="b") == str(ours)
        assert ours.is_dir()

    asyncio.run(main())


def test_a_custom_worker_is_served_by_the_same_loop(tmp_path: Path) -> None:
    program = tmp_path / "echo worker.py"
    program.write_text(
        "import sys\n"
        "from ullage.worker import serve\n"
        "class Echo:\n"
        "    def on_session_enter(self, context):\n"
        "        if context.common_data == b'refuse': raise RuntimeError('not today')\n"
        "    def on_task_invoke(self, task): return task.input + sys.argv[1].encode()\n"
        "    def on_session_leave(self): pass\n"
        "serve(Echo())\n"
    )

    async def main() -> None:
        application = Application(
            "echo",
            command="$PYTHON",
            arguments=(str(program), "${TAIL}"),
            environment={"TAIL": "!", "PYTHON": sys.executable},
        )
        async with opened(tmp_path / "data") as recorder:
            recorder.launch("e", application)
            await recorder.first(Registered)
            recorder.engine.bind(BindOrder("e", "s", b"refuse"))
            refused = await recorder.first(ExecutorBound)
            assert refused.code == 12
            assert refused.message.startswith("RuntimeError: not today\n")
            recorder.engine.bind(BindOrder("e", "s", b"fine"))
            assert (await recorder.first(ExecutorBound, 2)).code == 0
            recorder.give(1, abs)
            output = (await recorder.outcome(1)).output
            assert output is not None
            assert output.endswith(b"!")

    asyncio.run(main())
