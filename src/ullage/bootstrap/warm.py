"""What decides is compiled before anybody waits for it."""

from __future__ import annotations

import asyncio
import time

import structlog

from ullage.core import warming

PATIENCE_S = 2.0
"""How long a start is silent about what it waits for."""

log = structlog.get_logger()


async def warm() -> None:
    """Compile it, or read it back, beside the loop; it is told if it takes a while, as on the first start."""
    told_at = time.monotonic() + PATIENCE_S
    steps = warming.steps()
    for done, step in enumerate(steps):
        work = asyncio.create_task(asyncio.to_thread(step))
        if not (await asyncio.wait({work}, timeout=max(0.0, told_at - time.monotonic())))[0]:
            log.info("placement.compiling", step=done + 1, of=len(steps), note="once on this machine")
        await work
