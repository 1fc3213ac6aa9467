"""The eBPF program that closes device nodes: run by a small interpreter, against a rule that says the same plainly."""

from __future__ import annotations

import struct
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.local.device_program import DeviceNode, program

TYPES = {"b": 1, "c": 2}
LAST_MINOR = 2**20 - 1
LOAD_WORD, AND, MOVE, JUMP_UNLESS_EQUAL, EXIT = 0x61, 0x57, 0xB7, 0x55, 0x95
"""Opcodes of the instruction set (RFC 9669)."""


class Instruction(NamedTuple):
    opcode: int
    target: int
    source: int
    offset: int
    constant: int


def decoded(code: bytes) -> list[Instruction]:
    assert len(code) % 8 == 0
    found = []
    for opcode, registers, offset, constant in struct.iter_unpack("<BBhi", code):
        found.append(Instruction(opcode, registers & 0xF, registers >> 4, offset, constant))
    return found


def run(code: bytes, context: bytes) -> int:
    """Return what a program returns for a context; only instructions that it may have are known."""
    instructions, registers, at = decoded(code), dict[int, int](), 0
    while True:
        each = instructions[at]
        at += 1
        if each.opcode == LOAD_WORD:
            assert each.source == 1, "the kernel passes the context in the first register"
            (registers[each.target],) = struct.unpack_from("<I", context, each.offset)
        elif each.opcode == AND:
            registers[each.target] &= each.constant
        elif each.opcode == MOVE:
            registers[each.target] = each.constant
        elif each.opcode == JUMP_UNLESS_EQUAL:
            assert each.offset >= 0, "a loop is refused by the kernel"
            at += each.offset * (registers[each.target] != each.constant)
        elif each.opcode == EXIT:
            return registers[0]
        else:
            raise AssertionError(f"unknown opcode {each.opcode:#x}")


nodes = st.builds(
    DeviceNode, st.sampled_from("bc"), st.sampled_from([0, 1, 195, 4095]), st.sampled_from([0, 1, 7, 255, LAST_MINOR])
)


@given(st.lists(nodes, max_size=12), nodes, st.integers(1, 7))
def test_the_program_refuses_the_closed_nodes_and_no_others(
    closed: list[DeviceNode], asked: DeviceNode, access: int
) -> None:
    context = struct.pack("<III", access << 16 | TYPES[asked.type], asked.major, asked.minor)
    assert run(program(closed), context) == int(asked not in closed)


@pytest.mark.parametrize("count", [0, 1, 400])
def test_every_jump_stays_inside_and_the_last_instruction_is_an_exit(count: int) -> None:
    instructions = decoded(program(DeviceNode("c", 195, minor) for minor in range(count)))
    assert instructions[-1].opcode == EXIT
    for at, each in enumerate(instructions):
        if each.opcode == JUMP_UNLESS_EQUAL:
            assert at + 1 + each.offset < len(instructions)
