"""Compilation of the decision code before it is needed.

A server on a machine decides uncompiled at first, and changes over when the compiled code is ready. The server of a
cluster compiles first: an uncompiled decision over thousands of nodes takes too long.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import threading
import time
import warnings

from ullage.bootstrap import log
from ullage.core import warming
from ullage.core.kernel.compiling import cache, tiers

PATIENCE_S = 2.0
"""Seconds of a wait before it is logged."""

_NICENESS = 15
"""By how much the priority of a process is lower that compiles for a server."""

COMPILED = "ULLAGE_COMPILED"
"""Environment variable with the directory of an image that contains compiled code from its build."""

_CHILD = "--child"
_COMMAND = (sys.executable, "-m", "ullage.bootstrap.warm", _CHILD)


async def warm() -> None:
    """Compile the code, or load it, in a thread. If that takes a while, as on the first start, log each step."""
    next_log_at = time.monotonic() + PATIENCE_S
    await asyncio.to_thread(copy_image_cache)
    steps = warming.steps()
    for done, step in enumerate(steps):
        work = asyncio.create_task(asyncio.to_thread(step))
        if not (await asyncio.wait({work}, timeout=max(0.0, next_log_at - time.monotonic())))[0]:
            log.info("placement.compiling", step=done + 1, of=len(steps), note="once on this machine")
        await work


def copy_image_cache() -> None:
    """Copy the compiled code of an image (`ULLAGE_COMPILED`) into the compiler's cache, which must be writable."""
    image, to = os.environ.get(COMPILED), os.environ.get("NUMBA_CACHE_DIR")
    if not image or not to:
        return
    try:
        shutil.copytree(image, to, copy_function=_copy_if_absent, dirs_exist_ok=True)
    except OSError as error:  # shutil.Error, of many files, is one
        log.warning("placement.cache-not-copied", source=image, to=to, error=str(error))


def _copy_if_absent(source: str, to: str) -> None:
    if not os.path.exists(to):  # noqa: PTH110 - paths are strings here
        shutil.copyfile(source, to)


async def change_over() -> None:
    """Compile the code, if necessary, in a process of low priority; then decide with it.

    This process loads the compiled code in a thread. If it is cancelled, or fails, it continues uncompiled.
    """
    if not tiers.awaits_change_over():
        return
    try:
        fault = await _load_or_compile()
    except Exception as error:  # noqa: BLE001 - the server continues after any error of the compiler or the disk
        fault = f"{type(error).__name__}: {error}"
    if fault:
        log.warning("placement.uncompiled", error=fault, note="decisions stay uncompiled, and slower")
    else:
        tiers.change_over()


async def _load_or_compile() -> str:
    """Load the compiled code, if necessary after a child process compiled it. Return the error, or ""."""
    if await _load():
        return ""
    began = time.monotonic()
    log.info("placement.compiling", note="once on this machine; until then the same decisions run uncompiled")
    fault, output = await _compile_in_child()
    if fault or not await _load():
        fault = fault or "the compiled code cannot be loaded"
        return f"{fault}: {output or 'is the cache writable?'}"
    log.info("placement.compiled", seconds=round(time.monotonic() - began, 1))
    return ""


async def _load() -> bool:
    """Load the compiled code in a thread. Return whether it is complete."""
    stopped = threading.Event()

    def load() -> bool:
        try:
            with tiers.ahead(compile_too=False):
                for step in warming.steps():
                    if stopped.is_set():
                        return False
                    step()
        except tiers.NotCached:
            return False
        return True

    try:
        return await asyncio.to_thread(load)
    except asyncio.CancelledError:
        stopped.set()
        raise


async def _compile_in_child() -> tuple[str, str]:
    """Compile in a child process, which ends with this one. Return the error, or "", and its last output."""
    try:
        child = await asyncio.create_subprocess_exec(
            *_COMMAND,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "NUMBA_CACHE_DIR": cache.directory()},
        )
    except OSError as error:
        return "the compiling process does not start", str(error)
    assert child.stderr is not None
    try:
        text, _ = await asyncio.gather(child.stderr.read(), child.wait())
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
        raise
    last = text.decode(errors="replace").strip().rpartition("\n")[2]
    return f"the compiling process ended with {child.returncode}" if child.returncode else "", last


def _main() -> None:
    """Compile the code. For a server (`--child`) in the background; else a line shows the progress."""
    warnings.showwarning = _show_in_one_line
    if _CHILD in sys.argv:
        os.nice(_NICENESS)
        threading.Thread(target=_end_with_parent, daemon=True).start()
    steps = warming.steps()
    for done, step in enumerate(steps):
        if sys.stderr.isatty():
            sys.stderr.write(f"\rCompiling placement: step {done + 1} of {len(steps)} ")
            sys.stderr.flush()
        step()
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")


def _show_in_one_line(message: Warning | str, *_place: object, **_rest: object) -> None:
    sys.stderr.write(f"{message}\n")


def _end_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)  # returns when the parent ends, and holds no lock at the end of this process
    os._exit(1)


if __name__ == "__main__":
    _main()
