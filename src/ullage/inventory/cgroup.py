"""The cpu and memory limits of this process's control groups, versions 1 and 2.

Sources: cgroups(7), proc(5) for mountinfo, and the kernel's admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst. A
limit on any ancestor binds, so every level from the process's own group up to the mounted root is read and the
smallest value counts. A hybrid machine has both versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ullage.model.resources import MILLI

_CONTROLLERS = frozenset({"cpu", "memory"})
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class CgroupLimits:
    """The smallest limits found; None where none is set. Version 1 writes "no limit" as a huge number of bytes."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class _Mount:
    """One mounted hierarchy: `top` is the group at which `point` begins."""

    top: PurePosixPath
    point: PurePosixPath
    controllers: frozenset[str]
    """Empty for version 2, whose single hierarchy has no controller in its name."""


def read_limits(root: Path) -> CgroupLimits:
    """Return the limits of the process whose /proc/self is under `root`; an unreadable file does not limit."""
    groups = tuple(_own_groups(root))
    cpu = [quota for group in groups for quota in (_quota_v2(group), _quota_v1(group)) if quota is not None]
    names = ("memory.max", "memory.limit_in_bytes")
    memory = [limit for group in groups for limit in (_number(_text(group / name)) for name in names) if limit]
    return CgroupLimits(min(cpu, default=None), min(memory, default=None))


def _own_groups(root: Path) -> Iterator[Path]:
    """Yield the directories of the process's groups, in each hierarchy from the innermost to the root."""
    mounts = tuple(_mounts(root))
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, names, group = line.split(":", 2)
        controllers = frozenset(filter(None, names.split(",")))
        if controllers and not controllers & _CONTROLLERS:
            continue
        for mount in mounts:
            if mount.controllers == controllers & _CONTROLLERS:
                yield from _levels(root, mount, PurePosixPath(group))


def _mounts(root: Path) -> Iterator[_Mount]:
    for line in _text(root / "proc/self/mountinfo").splitlines():
        place, _, filesystem = line.partition(" - ")
        kind, _, options = filesystem.split(" ", 2)
        top, point = (PurePosixPath(_unescape(part)) for part in place.split(" ")[3:5])
        if kind == "cgroup2":
            yield _Mount(top, point, frozenset())
        elif kind == "cgroup" and (controllers := _CONTROLLERS & frozenset(options.split(","))):
            yield _Mount(top, point, controllers)


def _levels(root: Path, mount: _Mount, group: PurePosixPath) -> Iterator[Path]:
    """Yield `group` and its ancestors as directories, as far as `mount` contains them.

    A container without a cgroup namespace has the host's name of its group, while its mount contains only that group:
    hence the path is taken relative to the top of the mount. A mount that does not contain the group does not limit
    this process.
    """
    if not group.is_relative_to(mount.top):
        return
    inner = group.relative_to(mount.top)
    if ".." in inner.parts:  # the process was moved out of its namespace: only the top is visible
        inner = PurePosixPath()
    point = root / mount.point.relative_to("/")
    yield point / inner
    for ancestor in inner.parents:
        yield point / ancestor


def _quota_v2(group: Path) -> int | None:
    """Return the quota in cpu.max, which has `quota period` in microseconds, or `max period`."""
    quota, _, period = _text(group / "cpu.max").partition(" ")
    return _milli(_number(quota), _number(period))


def _quota_v1(group: Path) -> int | None:
    """Return the quota in cpu.cfs_quota_us, in microseconds per cpu.cfs_period_us, or -1."""
    return _milli(_number(_text(group / "cpu.cfs_quota_us")), _number(_text(group / "cpu.cfs_period_us")))


def _milli(quota: int | None, period: int | None) -> int | None:
    """Return thousandths of a cpu, rounded down, but at least 1, because the process does run."""
    return max(1, quota * MILLI // period) if quota and period else None


def _number(text: str) -> int | None:
    """Return the amount, or None for `max`, `-1` and a missing value."""
    return int(text) if text.isascii() and text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").strip()
    except OSError:
        return ""


def _unescape(path: str) -> str:
    """Decode a path: mountinfo writes blanks and backslashes in octal; systemd puts backslashes into group names."""
    return _ESCAPE.sub(lambda match: chr(int(match.group(1), 8)), path)
