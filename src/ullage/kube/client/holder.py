"""Where the holder of a Lease runs, and proof that its process has ended.

A Lease expires only after seconds in which nobody decides. Often it is known sooner that its holder has ended: its
process is gone from this kernel, its container was restarted, or its pod was deleted. The holder writes where it runs
into an annotation of the Lease. An annotation that cannot be parsed proves nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ullage.kube.client.api import KubeApi
from ullage.kube.client.kinds import PODS
from ullage.kube.client.objects import Lease, Pod
from ullage.model.error import NotFound, UllageError

HOLDER = "ullage.io/holder"
"""The annotation of the Lease."""

POD, NAMESPACE, UID, CONTAINER = "ULLAGE_POD_NAME", "ULLAGE_POD_NAMESPACE", "ULLAGE_POD_UID", "ULLAGE_CONTAINER_NAME"
"""The environment variables of a process in a pod. The chart sets them."""

_DEAD = frozenset("ZX")
"""States of a process that has ended (proc(5))."""

_UNKNOWN = 0
_LARGEST = 2**22
"""The largest process id that a kernel assigns (proc(5), pid_max)."""

_STATE, _START_TIME = 0, 19
"""Fields of /proc/PID/stat after the program name: the state, and the start time in clock ticks since boot."""


class ProcessPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a candidate runs; "" and 0 mean unknown.

    `kernel` is the boot id and the pid namespace of `pid`. `started` is the start time of that process in ticks since
    boot.
    """

    identity: str
    kernel: str = ""
    pid: int = 0
    started: int = 0
    namespace: str = ""
    pod: str = ""
    uid: str = ""
    container: str = ""


def here(identity: str, environment: Mapping[str, str] = os.environ) -> ProcessPlace:
    """Return where this process runs."""
    pod = (environment.get(name, "") for name in (NAMESPACE, POD, UID, CONTAINER))
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        kernel = f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ProcessPlace(identity, "", 0, 0, *pod)
    return ProcessPlace(identity, kernel, os.getpid(), started_at(os.getpid()) or _UNKNOWN, *pod)


def place_of(lease: Lease) -> ProcessPlace | None:
    """Return where the holder of a Lease runs; None if unknown."""
    try:
        found = msgspec.json.decode((lease.metadata.annotations or {}).get(HOLDER, ""), type=ProcessPlace)
    except msgspec.MsgspecError:
        return None
    return found if found.identity == lease.spec.holder_identity else None


def has_ended(place: ProcessPlace, own: ProcessPlace) -> bool:
    """Return whether the process there is known to have ended, from local evidence alone.

    A process of this kernel is looked up. A container of the pod of `own` with another pid namespace is a previous one:
    a kubelet restarts a container only after it has ended.
    """
    if place.kernel and place.kernel == own.kernel:
        now = started_at(place.pid)
        return now is None or (now != place.started and _UNKNOWN not in (now, place.started))
    return bool(place.uid and place.container and (place.uid, place.container) == (own.uid, own.container))


async def pod_has_ended(api: KubeApi, place: ProcessPlace, lease: Lease) -> bool:
    """Return whether the pod there is deleted, or its container has ended since it took the Lease.

    Both times are of the clock of the holder's node. A kubelet reports this, so callers also wait for a missed renewal.
    A pod that cannot be read proves nothing.
    """
    if not (place.uid and place.pod and place.namespace):
        return False
    try:
        pod = await api.get(PODS, place.pod, place.namespace)
    except NotFound:
        return True
    except UllageError:
        return False
    return pod.metadata.uid != place.uid or pod.finished or _ended_since(pod, place.container, lease.spec.acquire_time)


def _ended_since(pod: Pod, container: str, acquired: str | None) -> bool:
    since = _time(acquired)
    statuses = (pod.document.get("status") or {}).get("containerStatuses") or []
    for status in statuses if since else ():
        if isinstance(status, dict) and status.get("name") == container:
            for state in (status.get("state") or {}, status.get("lastState") or {}):
                ended = _time((state.get("terminated") or {}).get("finishedAt"))
                if ended is not None and since is not None and ended >= since:
                    return True
    return False


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone(UTC) if isinstance(text, str) else None
    except ValueError:
        return None


def started_at(pid: int) -> int | None:
    """Return the start time of a process of this kernel in ticks since boot, or `_UNKNOWN`; None if it has ended."""
    if not 0 < pid <= _LARGEST:
        return _UNKNOWN
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass  # it belongs to another user
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[_STATE] in _DEAD else int(fields[_START_TIME])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, IndexError):
        return _UNKNOWN
