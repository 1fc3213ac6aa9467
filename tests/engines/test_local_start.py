"""Starts of workers, and failed starts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path

import pytest

from tests.engines.recorder import alive, eventually, opened
from ullage.model.application import Application
from ullage.model.error import Unavailable
from ullage.service.engine_port import ExecutorGone, Registered
from ullage.wire import frames


async def gone_reason(directory: Path, application: Application, *, hello_s: float = 30.0) -> str:
    async with opened(directory, hello_s=hello_s) as recorder:
        recorder.launch("e", application)
        gone = await recorder.first(ExecutorGone)
        assert recorder.of(Registered) == []
        return gone.reason


def script(text: str) -> Application:
    return Application("mine", command=sys.executable, arguments=("-c", text))


def test_a_program_not_on_the_path(tmp_path: Path) -> None:
    reason = asyncio.run(gone_reason(tmp_path, Application("mine", command="no-such-program")))
    assert reason.startswith("the worker could not be started: No such file or directory: no-such-program (PATH is ")


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    application = Application("function", working_directory="/nowhere/at/all")
    assert asyncio.run(gone_reason(tmp_path, application)) == (
        "the worker could not be started: No such file or directory: /nowhere/at/all"
    )


def test_a_program_that_may_not_be_run(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("text")
    reason = asyncio.run(gone_reason(tmp_path / "data", Application("mine", command=str(tmp_path / "plain"))))
    assert reason == f"the worker could not be started: Permission denied: {tmp_path}/plain"


def test_a_worker_that_ends_before_it_registers_shows_its_last_output(tmp_path: Path) -> None:
    reason = asyncio.run(gone_reason(tmp_path, script("import surely_not_installed")))
    assert reason.startswith("the worker ended with exit code 1 before it registered; the end of its standard error:\n")
    assert reason.endswith("ModuleNotFoundError: No module named 'surely_not_installed'")


def test_a_built_in_worker_that_does_not_exist(tmp_path: Path) -> None:
    assert "function|command" in asyncio.run(gone_reason(tmp_path, Application("neither")))


def test_a_worker_that_never_registers_is_ended(tmp_path: Path) -> None:
    text = "import sys, time; print('thinking', file=sys.stderr, flush=True); time.sleep(3600)"
    reason = asyncio.run(gone_reason(tmp_path, script(text), hello_s=0.5))
    assert reason == "the worker did not register within 0.5 s; the end of its standard error:\nthinking"


def test_the_output_of_a_worker_is_logged(tmp_path: Path) -> None:
    def speak() -> None:
        print("grüße \udcff")  # noqa: T201  # printing is what is tested
        print("leise", file=sys.stderr)  # noqa: T201  # as above

    async def main() -> None:
        async with opened(tmp_path) as recorder:
            await recorder.enter("e.1")
            await recorder.run(1, speak, name="e.1")

    asyncio.run(main())
    logs = tmp_path / "logs/executors"
    assert (logs / "e.1.out").read_text() == "grüße \\udcff\n"
    assert (logs / "e.1.err").read_text() == "leise\n"
    assert (logs / "e.1.out").stat().st_mode & 0o777 == 0o600


def test_a_long_data_directory_gets_a_short_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)

    def own_socket() -> str:
        return os.environ["ULLAGE_WORKER_SOCKET"]

    async def main() -> str:
        async with opened(deep) as recorder:
            await recorder.enter()
            path: str = await recorder.run(1, own_socket)
            assert Path(path).parent.stat().st_mode & 0o777 == 0o700
            return path

    path = asyncio.run(main())
    assert len(path) < 108
    assert not Path(path).parent.exists()


def test_a_data_directory_has_one_engine(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path):
            with pytest.raises(Unavailable, match="in use by another server"):
                async with opened(tmp_path):
                    pass
        async with opened(tmp_path):
            pass

    asyncio.run(main())


@pytest.mark.parametrize(
    "hello",
    [
        frames.Hello(frames.PROTOCOL, "e", "wrong", 1),
        frames.Hello(frames.PROTOCOL, "somebody", "wrong", 1),
        frames.Left(),
    ],
    ids=["wrong-secret", "unknown-executor", "no-hello"],
)
def test_an_unauthenticated_connection_is_closed(tmp_path: Path, hello: frames.FromWorker) -> None:
    async def main() -> None:
        async with opened(tmp_path) as recorder:
            await recorder.enter()
            assert await connect_and_send(tmp_path / "run/executors.sock", bytes(frames.encode(hello))) == b""
            assert await recorder.run(1, abs, -1) == 1

    asyncio.run(main())


def test_a_large_frame_before_the_hello_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path):
            assert await connect_and_send(tmp_path / "run/executors.sock", (5000).to_bytes(4, "big")) == b""

    asyncio.run(main())


def test_a_secret_authenticates_once(tmp_path: Path) -> None:
    def own_secret() -> str:
        entries = Path("/proc/self/environ").read_text().split("\0")
        assert "ULLAGE_WORKER_SECRET" not in os.environ
        return next(entry for entry in entries if entry.startswith("ULLAGE_WORKER_SECRET=")).partition("=")[2]

    async def main() -> None:
        async with opened(tmp_path) as recorder:
            await recorder.enter()
            secret = await recorder.run(1, own_secret)
            hello = frames.Hello(frames.PROTOCOL, "e", secret, 1)
            assert await connect_and_send(tmp_path / "run/executors.sock", bytes(frames.encode(hello))) == b""
            assert await recorder.run(2, abs, -1) == 1

    asyncio.run(main())


def test_a_worker_of_another_protocol_is_ended_with_the_reason(tmp_path: Path) -> None:
    text = (
        "import os, socket, time\n"
        "from ullage.wire import frames\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(os.environ['ULLAGE_WORKER_SOCKET'])\n"
        "secret = os.environ['ULLAGE_WORKER_SECRET']\n"
        "s.sendall(frames.encode(frames.Hello(99, os.environ['ULLAGE_EXECUTOR'], secret, os.getpid())))\n"
        "time.sleep(3600)\n"
    )
    reason = asyncio.run(gone_reason(tmp_path, script(text)))
    assert reason.startswith(f"the worker uses protocol 99, not {frames.PROTOCOL}")


def test_a_worker_that_closes_its_connection_is_ended(tmp_path: Path) -> None:
    def hang_up() -> None:
        os.closerange(3, 256)

    async def main() -> None:
        async with opened(tmp_path) as recorder:
            await recorder.enter()
            pid = recorder.of(Registered)[0].pid
            recorder.give(1, hang_up)
            await recorder.first(ExecutorGone)
            await eventually(lambda: not alive(pid))

    asyncio.run(main())


async def connect_and_send(path: Path, data: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
