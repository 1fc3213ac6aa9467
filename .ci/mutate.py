"""Put faults into what decides, one at a time, and count those that the tests notice.

    python .ci/mutate.py --count 200 --jobs 2

Each fault is one small change of one line: another comparison, `and` for `or`, a number that is off by one, a condition
that is turned round, a statement that is left out. A fault survives if all tests of its room pass. It prints each
survivor as it was and as it became, and ends with 1 if fewer than `--least` percent are noticed.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[1]
CORE = "src/ullage/core/"
LIMIT_S = 900

ROOMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "verdict": (
        ("kernel/verdict.py", "verdict/cards.py", "verdict/kinds.py", "verdict/nodes.py", "verdict/quota.py"),
        (
            "card_verdicts",
            "quota",
            "allocator_cases",
            "mismatch",
            "partition",
            "curable",
            "placement",
            "allocator_oracle",
        ),
    ),
    "placing": (
        ("placing/candidates.py", "placing/selection.py", "placing/placement.py", "placing/reserving.py"),
        ("allocator_cases", "quota", "offers", "nomination", "placement", "allocator_oracle", "draft"),
    ),
    "ledger": (
        ("books/fleet.py", "books/inventory.py", "kernel/charge.py", "holdings.py"),
        ("fleet", "allocator_cases", "limits_and_charges", "observation", "placement", "changing_cards"),
    ),
    "evicting": (
        ("evicting",),
        ("preemption", "eviction", "reclaim", "consolidation", "cycle", "moving"),
    ),
}
"""By room: files or folders of `core`, and the words by which its tests are found in `tests/core`, quick ones first."""

COMPARED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
COUNTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.BitAnd: ast.BitOr}
EXTREMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True)
class Fault:
    """One change: the room and the file, the line before and after it, and the whole new text."""

    room: str
    file: str
    line: int
    before: str
    after: str
    text: str


def replaced(node: ast.AST) -> ast.AST | None:  # noqa: PLR0911 - one per kind of change
    """Return what a node becomes; None for most."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARED:
            return ast.Compare(left, [COMPARED[type(op)]()], [right])
        case ast.BoolOp(op=op, values=values):
            return ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in COUNTED:
            return ast.BinOp(left, COUNTED[type(op)](), right)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.Constant(value=value) if type(value) is int and value in (0, 1):
            return ast.Constant(1 - value)
        case ast.Constant(value=bool(value)):
            return ast.Constant(not value)
        case ast.Call(func=ast.Name(id=name), args=values, keywords=named) if name in EXTREMES:
            return ast.Call(ast.Name(EXTREMES[name], ast.Load()), values, named)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return ast.IfExp(test, orelse, body)
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            return ast.Pass()
    return None


def faults_of(room: str, path: Path) -> Iterator[Fault]:
    """Yield all faults in the functions of one file; whether `zip` checks lengths decides nothing."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(source)
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    inner = {id(node): node for function in functions for body in function.body for node in ast.walk(body)}
    strict = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.keyword) and each.arg == "strict"}
    for node in inner.values():
        new = replaced(node)
        if new is None or id(node) in strict or not isinstance(node, ast.expr | ast.stmt) or node.end_lineno is None:
            continue
        first, last = (
            starts[node.lineno - 1] + node.col_offset,
            starts[node.end_lineno - 1] + (node.end_col_offset or 0),
        )
        before, after = source[first:last].decode(), ast.unparse(ast.fix_missing_locations(new))
        after = after if isinstance(node, ast.stmt) else f"({after})"
        text = source[:first].decode() + after + source[last:].decode()
        name = path.relative_to(ROOT).as_posix()
        yield Fault(room, name, node.lineno, " ".join(before.split()), " ".join(after.split()), text)


def chosen(rooms: list[str], count: int, seed: int) -> list[Fault]:
    """Return so many faults, as many of each room as there are, at random."""
    dice, found = random.Random(seed), []  # noqa: S311 - a sample, the same each time
    for room in rooms:
        files, _ = ROOMS[room]
        paths = [path for name in files for path in sorted(_paths(ROOT / CORE / name))]
        everything = [fault for path in paths for fault in faults_of(room, path)]
        found += dice.sample(everything, min(len(everything), -(-count // len(rooms))))
    return found


def _paths(path: Path) -> Iterator[Path]:
    return path.rglob("*.py") if path.is_dir() else iter([path])


def tests_of(room: str) -> list[str]:
    """Return the test files of a room, in the order of its words."""
    _, words = ROOMS[room]
    files = sorted((ROOT / "tests" / "core").glob("test_*.py"))
    return list(dict.fromkeys(str(file.relative_to(ROOT)) for word in words for file in files if word in file.stem))


def is_noticed(fault: Fault, place: Path) -> bool:
    """Return whether a test fails with this fault, in a copy of the checkout."""
    file = place / fault.file
    whole = file.read_text()
    file.write_text(fault.text)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--no-header"]
    command += ["-m", "not long", "--hypothesis-profile=quick", *tests_of(fault.room)]
    plain = {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(place / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ended = subprocess.run(  # noqa: S603 - our own tests
            command, cwd=place, env=os.environ | plain, capture_output=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        file.write_text(whole)
    return ended.returncode != 0


def main() -> int:
    """Run the faults that the arguments name."""
    parser = argparse.ArgumentParser(description="Put faults into what decides and count those that tests notice.")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--rooms", nargs="+", choices=sorted(ROOMS), default=sorted(ROOMS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--least", type=float, default=95.0, help="percent that tests must notice")
    given = parser.parse_args()
    faults = chosen(given.rooms, given.count, given.seed)
    places: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.jobs):
            place = Path(folder) / str(number)
            for name in ("src", "tests", "docs", "benchmarks"):
                shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(ROOT / "pyproject.toml", place)
            places.put(place)

        def tried(fault: Fault) -> bool:
            place, began = places.get(), time.monotonic()
            try:
                noticed = is_noticed(fault, place)
            finally:
                places.put(place)
            word = "noticed " if noticed else "SURVIVED"
            took = f"{time.monotonic() - began:4.0f} s"
            print(f"{word} {took} {fault.file}:{fault.line}: {fault.before} -> {fault.after}", flush=True)
            return noticed

        with ThreadPoolExecutor(given.jobs) as pool:
            noticed = sum(pool.map(tried, faults))
    percent = 100 * noticed / max(1, len(faults))
    print(f"{noticed} of {len(faults)} faults noticed: {percent:.1f} %")
    return 0 if percent >= given.least else 1


if __name__ == "__main__":
    sys.exit(main())
