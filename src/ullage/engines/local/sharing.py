"""Limits on parts of cards: by CUDA MPS, by HAMi-core, or by nobody.

A driver knows no parts of a card; what keeps a process to its part is a service or a library that the
operator provides. Where neither can hold all of a grant, the worker is told so, and nothing is pretended.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from ullage.model.gpu import Gpu
from ullage.model.grant import Grant

_MIB, _GIB = 1 << 20, 1 << 30


class Enforced(StrEnum):
    """Who holds a worker to the parts it was granted: the value of `ULLAGE_GPU_ENFORCED`."""

    NONE = "none"
    MPS = "mps"
    HAMI = "hami"


@dataclass(frozen=True, slots=True)
class ExecutorLimits:
    """Variables for a worker, and who then holds it to all that it was granted."""

    environment: dict[str, str]
    enforced: Enforced


class Sharing(Protocol):
    """A way to hold workers to parts of cards."""

    def holds(self, gpu: Gpu) -> bool:
        """Return whether a part of this card can be enforced now."""
        ...

    def limits(self, gpus: Sequence[Gpu], grants: Sequence[Grant], cache: Path) -> ExecutorLimits:
        """Return what a worker with these cards needs; no `grants` for whole ones.

        `cache` names a file that is not there, for this worker alone.
        """
        ...


class Unenforced:
    """Nobody."""

    def holds(self, gpu: Gpu) -> bool:  # noqa: ARG002 - as the protocol says
        """Never."""
        return False

    def limits(self, gpus: Sequence[Gpu], grants: Sequence[Grant], cache: Path) -> ExecutorLimits:  # noqa: ARG002 - as the protocol says
        """None."""
        return ExecutorLimits({}, Enforced.NONE)


@dataclass(frozen=True, slots=True)
class Mps:
    """CUDA MPS: the driver limits its clients' memory per card, and their threads by one number for all cards.

    Source: NVIDIA Multi-Process Service, environment variables and nvidia-cuda-mps-control. Cards are
    counted as the client sees them. A client that finds no control daemon runs without MPS and without
    limits, so the daemon is looked for each time: it writes its process id into its pipe directory.
    """

    pipe: Path
    log: Path

    @property
    def running(self) -> bool:
        """Whether the control daemon lives."""
        try:
            pid = int((self.pipe / "nvidia-cuda-mps-control.pid").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return False
        return Path(f"/proc/{pid}").exists()

    def holds(self, gpu: Gpu) -> bool:
        """If the daemon runs and the card's vram is known: limits are in bytes."""
        return self.running and gpu.vram_bytes is not None

    def limits(self, gpus: Sequence[Gpu], grants: Sequence[Grant], cache: Path) -> ExecutorLimits:  # noqa: ARG002 - as the protocol says
        """Return the limits of a client. Every worker with cards is one: an exclusive card takes no other process."""
        if not gpus or not self.running:
            return ExecutorLimits({}, Enforced.NONE)
        environment = {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipe), "CUDA_MPS_LOG_DIRECTORY": str(self.log)}
        if not grants or not all(map(self.holds, gpus)):
            return ExecutorLimits(environment, Enforced.NONE)
        memory = [f"{n}={_mps_size(grant.vram_bytes)}" for n, grant in enumerate(grants) if grant.vram_bytes]
        if memory:
            environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(memory)
        percent = min(grant.compute_percent for grant in grants)  # one number: nobody gets more than granted
        if percent:
            environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(percent)
        return ExecutorLimits(environment, Enforced.MPS)


HAMI_LOCKS = Path("/tmp/vgpulock")  # noqa: S108 - the library's own choice; without it there is no compute limit
"""Directory in which HAMi-core makes its lock; its README has users create it."""


@dataclass(frozen=True, slots=True)
class HamiCore:
    """HAMi-core: a library between program and driver that counts memory and slows kernels down.

    Source: HAMi-core, README and multiprocess_memory_limit.c. Limits are those of its shared file, once
    that exists: it must be new for each worker. Outside of a container the library books memory by the
    number at the beginning of each entry of CUDA_VISIBLE_DEVICES but limits it by the card's place in the
    list; the two agree for one card named by uuid, and so it enforces nothing else (HAMi-core issue 319).
    """

    library: Path

    def holds(self, gpu: Gpu) -> bool:
        """If the library is there and the card is named by uuid and says how much vram it has."""
        return self.library.is_file() and gpu.vram_bytes is not None and gpu.uuid.startswith("GPU-")

    def limits(self, gpus: Sequence[Gpu], grants: Sequence[Grant], cache: Path) -> ExecutorLimits:
        """Return those of one card; the library is not loaded for several, whose memory it would count as one's."""
        if len(grants) != 1 or not all(map(self.holds, gpus)):
            return ExecutorLimits({}, Enforced.NONE)
        HAMI_LOCKS.mkdir(exist_ok=True)
        environment = {"LD_PRELOAD": str(self.library), "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(cache)}
        (grant,) = grants
        if grant.vram_bytes:
            environment["CUDA_DEVICE_MEMORY_LIMIT_0"] = f"{max(1, grant.vram_bytes // _MIB)}m"
        if grant.compute_percent:
            environment["CUDA_DEVICE_SM_LIMIT"] = str(grant.compute_percent)
        return ExecutorLimits(environment, Enforced.HAMI)


def preload(*lists: str | None) -> str:
    """Return a value of LD_PRELOAD: libraries of several such values, in order."""
    return os.pathsep.join(value for value in lists if value)


def _mps_size(amount: int) -> str:
    """Bytes as MPS takes them: whole G or M, rounded down."""
    return f"{amount // _GIB}G" if amount % _GIB == 0 else f"{max(1, amount // _MIB)}M"
