"""A filter of device nodes for a cgroup of version 2: an eBPF program that the kernel asks at each open and mknod.

The kernel gives it the type and the numbers of the node (`struct bpf_cgroup_dev_ctx` in linux/bpf.h), and refuses what
it returns 0 for. Programs of the cgroups above apply as well, so it only takes away. It lives as long as its cgroup.

Source: bpf(2), Documentation/bpf/standardization/instruction-set.rst of Linux.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_BPF = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361}
"""System call number by machine: no C library wraps the call."""
_PROG_LOAD, _PROG_ATTACH = 5, 8
_CGROUP_DEVICE_PROGRAM, _CGROUP_DEVICE_ATTACH = 15, 6
_ALLOW_MULTI = 2
"""Programs that others attach to this cgroup, or to those above and below, apply too."""

_LOAD, _AND, _MOVE, _JUMP_UNLESS_EQUAL, _EXIT = 0x61, 0x57, 0xB7, 0x55, 0x95
"""Opcodes: a word of memory to a register; register and constant; a jump that compares a register to a constant."""
_RESULT, _CONTEXT, _TYPE, _MAJOR, _MINOR = 0, 1, 2, 3, 4
"""Registers: the kernel sets the second, and reads the first."""
_TYPES = {"b": 1, "c": 2}
_TYPE_MASK = 0xFFFF
"""The first word of the context has the type below, and the access in the upper half."""

_libc = ctypes.CDLL(None, use_errno=True)


class DeviceNode(NamedTuple):
    """A device node by its type, `c` or `b`, and its numbers."""

    type: str
    major: int
    minor: int


def program(closed: Iterable[DeviceNode]) -> bytes:
    """Return the instructions that refuse these nodes and allow all others."""
    code = [
        _instruction(_LOAD, _TYPE, _CONTEXT, offset=0),
        _instruction(_AND, _TYPE, constant=_TYPE_MASK),
        _instruction(_LOAD, _MAJOR, _CONTEXT, offset=4),
        _instruction(_LOAD, _MINOR, _CONTEXT, offset=8),
    ]
    for node in closed:
        code += [  # each jump leads to the next node
            _instruction(_JUMP_UNLESS_EQUAL, _TYPE, offset=4, constant=_TYPES[node.type]),
            _instruction(_JUMP_UNLESS_EQUAL, _MAJOR, offset=3, constant=node.major),
            _instruction(_JUMP_UNLESS_EQUAL, _MINOR, offset=2, constant=node.minor),
            _instruction(_MOVE, _RESULT, constant=0),
            _instruction(_EXIT),
        ]
    return b"".join([*code, _instruction(_MOVE, _RESULT, constant=1), _instruction(_EXIT)])


def attach(directory: Path, closed: Iterable[DeviceNode]) -> None:
    """Close nodes to the processes of a cgroup of version 2.

    Raises:
        OSError: the kernel refuses, or has no such filters. Loading one needs CAP_BPF and CAP_NET_ADMIN.

    """
    loaded = _load(program(closed))
    try:
        group = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _call(_PROG_ATTACH, struct.pack("=IIII", group, loaded, _CGROUP_DEVICE_ATTACH, _ALLOW_MULTI))
        finally:
            os.close(group)
    finally:
        os.close(loaded)  # the cgroup holds the program


def _load(instructions: bytes) -> int:
    """Return the descriptor of a program that the kernel has checked."""
    code = ctypes.create_string_buffer(instructions, len(instructions))
    license_ = ctypes.create_string_buffer(b"")
    addresses = ctypes.addressof(code), ctypes.addressof(license_)
    without_log = 0, 0, 0
    count = len(instructions) // 8
    return _call(_PROG_LOAD, struct.pack("=IIQQIIQ", _CGROUP_DEVICE_PROGRAM, count, *addresses, *without_log))


def _call(command: int, attributes: bytes) -> int:
    number = _BPF.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    result: int = _libc.syscall(number, command, buffer, len(attributes))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _instruction(opcode: int, target: int = 0, source: int = 0, *, offset: int = 0, constant: int = 0) -> bytes:
    return struct.pack("=BBhi", opcode, source << 4 | target, offset, constant)
