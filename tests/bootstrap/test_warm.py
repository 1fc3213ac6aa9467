"""A server decides uncompiled until a child process, which never outlives it, has compiled the functions."""

import asyncio
import os
import subprocess
import sys

import pytest

from ullage.bootstrap import log, warm
from ullage.core import warming
from ullage.core.kernel.compiling import tiers

pytestmark = pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="there is one tier only")
HAPPY = (sys.executable, "-c", "")
PATIENT = (sys.executable, "-c", "import sys; print('begun', file=sys.stderr); sys.stdin.read()")


@pytest.fixture(autouse=True)
def plain():
    tiers.start_plain()
    yield
    tiers.change_over()


@pytest.fixture
def logs(monkeypatch):
    """Return the log messages in order."""
    found = []
    monkeypatch.setattr(log, "_write", lambda _level, event, facts: found.append({"event": event, **facts}))
    return found


def changed_over(monkeypatch, command, kept):
    """Change over, where `kept` says at each look whether all is on disk."""
    looks = iter(kept)

    def look():
        if not next(looks):
            raise tiers.NotCached("something")

    monkeypatch.setattr(warming, "steps", lambda: [look])
    monkeypatch.setattr(warm, "_COMMAND", command)
    asyncio.run(warm.change_over())


def test_cached_code_is_read_without_a_log_message(monkeypatch, logs):
    changed_over(monkeypatch, ("/no/such/program",), [True])
    assert logs == []
    assert not tiers.is_plain()


def test_missing_code_is_compiled_by_a_child_and_then_read(monkeypatch, logs):
    changed_over(monkeypatch, HAPPY, [False, True])
    assert [entry["event"] for entry in logs] == ["placement.compiling", "placement.compiled"]
    assert not tiers.is_plain()


@pytest.mark.parametrize(
    ("command", "kept", "message"),
    [
        ((sys.executable, "-c", "import sys; sys.exit('no room left')"), [False], "ended with 1: no room left"),
        (HAPPY, [False, False], "cannot be loaded"),
        (("/no/such/program",), [False], "No such file"),
    ],
)
def test_without_compiled_code_decisions_stay_uncompiled_with_a_reason(monkeypatch, logs, command, kept, message):
    changed_over(monkeypatch, command, kept)
    assert [entry["event"] for entry in logs] == ["placement.compiling", "placement.uncompiled"]
    assert message in logs[-1]["error"]
    assert tiers.is_plain()


def test_an_error_of_the_compiler_is_reported_and_decisions_stay_uncompiled(monkeypatch, logs):
    def fail():
        raise RuntimeError("no such target")

    monkeypatch.setattr(warming, "steps", lambda: [fail])
    asyncio.run(warm.change_over())
    assert [(entry["event"], entry["error"]) for entry in logs] == [
        ("placement.uncompiled", "RuntimeError: no such target")
    ]
    assert tiers.is_plain()


def test_a_server_that_ends_meanwhile_ends_the_child(monkeypatch):
    started, begun, create = [], asyncio.Event(), asyncio.create_subprocess_exec

    async def start(*command, **more):
        started.append(await create(*command, **more))
        begun.set()
        return started[0]

    async def end_while_it_compiles():
        work = asyncio.create_task(warm.change_over())
        await begun.wait()
        work.cancel()
        await asyncio.wait({work})

    def look():
        raise tiers.NotCached("something")

    monkeypatch.setattr(warming, "steps", lambda: [look])
    monkeypatch.setattr(warm, "_COMMAND", PATIENT)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    asyncio.run(end_while_it_compiles())
    assert started[0].returncode is not None
    assert tiers.is_plain()


def test_the_child_ends_when_its_parent_is_gone():
    done = subprocess.run([*warm._COMMAND], stdin=subprocess.DEVNULL, check=False, timeout=60)
    assert done.returncode == 1


def test_a_child_that_is_done_ends_well_while_its_parent_lives_on():
    code = "import sys; from ullage.bootstrap import warm; warm.warming.steps = list; warm._main()"
    command = [sys.executable, "-c", code, warm._COMMAND[-1]]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        assert child.wait(timeout=60) == 0


def test_compiled_code_of_an_image_is_copied_into_the_cache(monkeypatch, tmp_path):
    image, cache = tmp_path / "image", tmp_path / "cache"
    for folder, files in ((image, {"kernel/a": "1", "kernel/b": "1"}), (cache, {"kernel/b": "2"})):
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    monkeypatch.setenv(warm.COMPILED, str(image))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(cache))
    warm.copy_image_cache()
    assert {path.name: path.read_text() for path in cache.rglob("*") if path.is_file()} == {"a": "1", "b": "2"}


def test_an_image_that_brings_nothing_is_named(monkeypatch, logs, tmp_path):
    monkeypatch.setenv(warm.COMPILED, str(tmp_path / "none"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    warm.copy_image_cache()
    assert [entry["event"] for entry in logs] == ["placement.cache-not-copied"]
    assert str(tmp_path / "none") in logs[0]["source"]


def test_without_a_compiler_decisions_stay_as_they_are():
    code = (
        "import asyncio; from ullage.bootstrap.warm import change_over; from ullage.core import warming; "
        "from ullage.core.kernel.compiling import tiers; tiers.start_plain(); asyncio.run(change_over()); "
        "print(tiers.is_plain(), tiers.awaits_change_over()); [step() for step in warming.steps()]"
    )
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"
