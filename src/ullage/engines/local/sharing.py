"""Limits on parts of cards: by CUDA MPS, by HAMi-core, or none.

A driver does not know parts of a card. A service or a library that the operator provides limits a process to its
part. `ULLAGE_GPU_ENFORCED` tells the worker whether one of them enforces all of its grant.
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
    """The mechanism that enforces the grant of a worker: the value of `ULLAGE_GPU_ENFORCED`."""

    NONE = "none"
    MPS = "mps"
    HAMI = "hami"
    MIG = "mig"


@dataclass(frozen=True, slots=True)
class ExecutorLimits:
    """Variables for a worker, and what then enforces its whole grant."""

    environment: dict[str, str]
    enforced: Enforced


class Sharing(Protocol):
    """A way to limit workers to parts of cards."""

    def can_enforce(self, gpu: Gpu) -> bool:
        """Return whether a part of this card can be enforced now."""
        ...

    def limits(self, gpus: Sequence[Gpu], grants: Sequence[Grant], cache: Path) -> ExecutorLimits:
        """Return the limits of a worker with these cards; whole cards have no `grants`.

        `cache` names a file that does not exist, for this worker alone.
        """
        ...


class Unenforced:
    """Enforces nothing."""

    def can_enforce(self, gpu: Gpu) -> bool:  # noqa: ARG002 - as the protocol says
        return False

    def limits(self, gpus: Sequence[Gpu], grants: Sequence[Grant], cache: Path) -> ExecutorLimits:  # noqa: ARG002 - as the protocol says
        return ExecutorLimits({}, Enforced.NONE)


@dataclass(frozen=True, slots=True)
class Mps:
    """CUDA MPS: the driver limits its clients' memory per card, and their threads by one number for all cards.

    Source: NVIDIA Multi-Process Service, environment variables and nvidia-cuda-mps-control. Cards are numbered as
    the client sees them. A client without a control daemon runs without limits, so each call checks the daemon:
    it writes its process id into its pipe directory.
    """

    pipe: Path
    log: Path

    @property
    def running(self) -> bool:
        """Whether the control daemon runs."""
        try:
            pid = int((self.pipe / "nvidia-cuda-mps-control.pid").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return False
        return Path(f"/proc/{pid}").exists()

    def can_enforce(self, gpu: Gpu) -> bool:
        """Return whether the daemon runs and the card's vram is known: limits are in bytes."""
        return self.running and gpu.vram_bytes is not None

    def limits(self, gpus: Sequence[Gpu], grants: Sequence[Grant], cache: Path) -> ExecutorLimits:  # noqa: ARG002 - as the protocol says
        """Return the limits of a client. Every worker with cards is one: MPS admits no other process to a card."""
        if not gpus or not self.running:
            return ExecutorLimits({}, Enforced.NONE)
        environment = {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipe), "CUDA_MPS_LOG_DIRECTORY": str(self.log)}
        if not grants or not all(map(self.can_enforce, gpus)):
            return ExecutorLimits(environment, Enforced.NONE)
        memory = [f"{n}={_mps_size(grant.vram_bytes)}" for n, grant in enumerate(grants) if grant.vram_bytes]
        if memory:
            environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(memory)
        percent = min(grant.compute_percent for grant in grants)  # one number for all cards: the least grant
        if percent:
            environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(percent)
        return ExecutorLimits(environment, Enforced.MPS)


HAMI_LOCKS = Path("/tmp/vgpulock")  # noqa: S108 - the library's own choice; without it there is no compute limit
"""Directory of the lock of HAMi-core, whose README asks users to create it."""


@dataclass(frozen=True, slots=True)
class HamiCore:
    """HAMi-core: a library between program and driver that counts memory and delays kernels.

    Source: HAMi-core, README and multiprocess_memory_limit.c. An existing shared file fixes the limits, so each
    worker needs a new one. Outside of a container the library counts memory by the number at the beginning of each
    entry of CUDA_VISIBLE_DEVICES, but limits it by the position of the card in the list. The two agree only for
    one card named by uuid, so nothing else is enforced (HAMi-core issue 319).
    """

    library: Path

    def can_enforce(self, gpu: Gpu) -> bool:
        """Return whether the library exists, and the card has a uuid and a known vram."""
        return self.library.is_file() and gpu.vram_bytes is not None and gpu.uuid.startswith("GPU-")

    def limits(self, gpus: Sequence[Gpu], grants: Sequence[Grant], cache: Path) -> ExecutorLimits:
        """Return the limits of one card. For several cards the library counts wrongly and is not loaded."""
        if len(grants) != 1 or not all(map(self.can_enforce, gpus)):
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
    """Return one value of LD_PRELOAD from several, in order."""
    return os.pathsep.join(value for value in lists if value)


def _mps_size(amount: int) -> str:
    """Return bytes in the form of MPS: whole G or M, rounded down."""
    return f"{amount // _GIB}G" if amount % _GIB == 0 else f"{max(1, amount // _MIB)}M"
