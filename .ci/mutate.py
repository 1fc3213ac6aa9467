"""Put faults into what decides, one at a time, and count those that the tests notice.

    python .ci/mutate.py --count 200 --jobs 2

Each fault is one small change of one line: another comparison, `and` for `or`, a number that is off by one, a condition
that is turned round, a statement that is left out. The tests of the core are collected once. A child process runs all
of them, to see which lines each of them reaches. Then there is a child for each fault, which puts it into the functions
in memory and runs the tests that reach it, quick ones first. The fault survives if all of them pass. The program prints
each survivor as it was and as it became, and ends with 1 if fewer than `--least` percent are noticed.

Faults that change no behaviour are in `same.toml`, each with its reason; they are not tried. Of several equal changes
in equal lines of one function, `nth` names one (the first if it is not given).
"""

from __future__ import annotations

import argparse
import ast
import gc
import hashlib
import json
import os
import random
import resource
import signal
import sys
import time
import tomllib
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf
from pathlib import Path
from types import CodeType, FunctionType

import pytest
from reach import Trace

ROOT = Path(__file__).parents[1]
CORE = ROOT / "src" / "ullage" / "core"
SAME = Path(__file__).with_name("same.toml")

TESTS = "tests/core"

MORE_S, PATIENCE, MEMORY = 5, 3, 8 << 30
"""CPU time that a test may take with a fault: so much more than so many times as long as without; and its memory."""

BROKEN = 70
"""How a child ends that fails in itself."""

ROOMS: dict[str, tuple[str, ...]] = {
    "verdict": ("kernel/verdict.py", "verdict/cards.py", "verdict/kinds.py", "verdict/nodes.py", "verdict/quota.py"),
    "placing": ("placing/candidates.py", "placing/selection.py", "placing/placement.py", "placing/reserving.py"),
    "ledger": ("books/fleet.py", "books/inventory.py", "kernel/charge.py", "holdings.py"),
    "evicting": ("evicting",),
}
"""By room: files or folders of the core."""

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
    """One change: its file, function, lines of the statement, line, what becomes what, and the whole new text.

    `nth` counts equal changes of equal lines in one function, from 1.
    """

    file: str
    function: str
    lines: range
    whole: str
    before: str
    after: str
    text: str
    nth: int = 1

    @property
    def name(self) -> tuple[str, str, str, str, int]:
        """The file, function, line, change and number: what stays as long as the line stays."""
        return self.file, self.function, self.whole, f"{self.before} -> {self.after}", self.nth


def replaced(node: ast.AST) -> ast.AST | None:  # noqa: C901, PLR0911 - one per kind of change
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
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name("super"))))):
            return None  # without it the function has another closure, so that its code cannot be put in
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            return ast.Pass()
    return None


def faults_of(path: Path) -> Iterator[Fault]:
    """Yield all faults in the functions of one file.

    Whether `zip` checks lengths decides nothing, nor does what only warms the compiler.
    """
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(source)
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and not node.name.startswith("warm")
    ]
    inner = {id(node): (function, node) for function in functions for body in function.body for node in ast.walk(body)}
    strict = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.keyword) and each.arg == "strict"}
    spans = statements(functions)
    seen: Counter[tuple[object, ...]] = Counter()
    for function, node in sorted(inner.values(), key=_place):
        new = replaced(node)
        if new is None or id(node) in strict or not isinstance(node, ast.expr | ast.stmt) or node.end_lineno is None:
            continue
        first, last = (
            starts[node.lineno - 1] + node.col_offset,
            starts[node.end_lineno - 1] + (node.end_col_offset or 0),
        )
        before, after = source[first:last].decode(), ast.unparse(ast.fix_missing_locations(new))
        lines = "\n" * (before.count("\n") - after.count("\n"))  # so that functions stay where they are
        after = after + lines if isinstance(node, ast.stmt) else f"({after}{lines})"
        text = source[:first].decode() + after + source[last:].decode()
        whole = source.splitlines()[node.lineno - 1].decode().strip()
        name = path.relative_to(CORE).as_posix()
        before, after = " ".join(before.split()), " ".join(after.split())
        fault = Fault(name, function.name, spans[id(node)], whole, before, after, text)
        seen[fault.name] += 1
        yield replace(fault, nth=seen[fault.name])


def _place(found: tuple[ast.FunctionDef, ast.AST]) -> tuple[int, int]:
    """Sort key of nodes by their place in the file."""
    _, node = found
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def statements(functions: Iterable[ast.FunctionDef]) -> dict[int, range]:
    """Return, by node, the lines of the statement that it is in; of one with a body, those before the body."""
    found: dict[int, range] = {}
    for function in functions:
        for statement in (node for node in ast.walk(function) if isinstance(node, ast.stmt)):
            last = statement.end_lineno or statement.lineno
            inside = getattr(statement, "body", None) or getattr(statement, "cases", None)
            if inside:
                first = inside[0].pattern if isinstance(inside[0], ast.match_case) else inside[0]
                last = max(statement.lineno, first.lineno - 1)
            lines = range(statement.lineno, last + 1)
            found |= {id(node): lines for node in ast.walk(statement) if getattr(node, "lineno", 0) in lines}
    return found


def chosen(rooms: Iterable[str], count: int, seed: int, at: Iterable[str]) -> dict[str, list[Fault]]:
    """Return so many faults at random, as many of each room as there are; or all of the statements that `at` names."""
    found = {}
    listed = tomllib.loads(SAME.read_text())["fault"]
    same = {(each["file"], each["function"], each["line"], each["change"], each.get("nth", 1)) for each in listed}
    for room in rooms:
        dice = random.Random(seed)  # noqa: S311 - a sample, the same each time
        everything = [fault for path in files_of(room) for fault in faults_of(path)]
        gone = {name for name in same if CORE / name[0] in files_of(room)} - {fault.name for fault in everything}
        if gone:
            raise SystemExit(f"{SAME.name} names faults that are not there: {sorted(gone)}")
        tried = [fault for fault in everything if fault.name not in same]
        named = [fault for fault in tried if f"{fault.file}:{fault.lines[0]}" in at]
        found[room] = named if at else dice.sample(tried, min(len(tried), count))
    return found


def files_of(room: str) -> list[Path]:
    """Return the files of a room."""
    places = [CORE / name for name in ROOMS[room]]
    return [file for place in places for file in (sorted(place.rglob("*.py")) if place.is_dir() else [place])]


def put_in(fault: Fault) -> None:
    """Give the functions of the file, wherever they are, the code that they have with the fault."""
    path = str(CORE / fault.file)
    new = {(code.co_qualname, code.co_firstlineno): code for code in _codes(compile(fault.text, path, "exec"))}
    gc.unfreeze()  # frozen objects are not listed
    functions = [each for each in gc.get_objects() if type(each) is FunctionType]
    found = [each for each in functions if each.__code__.co_filename == path and each.__name__ != "<lambda>"]
    if not found:
        raise LookupError(f"no function of {fault.file} is in memory")
    for each in found:
        each.__code__ = new[each.__code__.co_qualname, each.__code__.co_firstlineno]


def _codes(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _codes(inner)


@dataclass(frozen=True, slots=True)
class Reach:
    """Which tests reach a line of the core, by `file:line`, and how many seconds of CPU time each of them takes."""

    tests: dict[str, set[str]]
    seconds: dict[str, float]

    def of(self, fault: Fault, budget_s: float) -> list[str]:
        """Return the tests that reach a fault, quick ones first, as many as take no more than the budget together."""
        places = [str(CORE / fault.file) + f":{line}" for line in fault.lines]
        names = set().union(*(self.tests.get(place, ()) for place in places))
        quick = sorted(names, key=lambda name: (self.seconds[name], name))
        return quick[: bisect_right(list(accumulate(self.seconds[name] for name in quick)), budget_s)]


class Trials:
    """A pytest plugin that runs the tests with faults instead of running them."""

    def __init__(self, faults: dict[str, list[Fault]], jobs: int, budget_s: float, kept: Path | None) -> None:
        self._faults = faults
        self._jobs = jobs
        self._budget_s = budget_s
        self._kept = kept
        self._reach = Reach({}, {})
        self._items: dict[str, pytest.Item] = {}
        self._running: dict[int, tuple[str, Fault, float]] = {}
        self.noticed: dict[str, int] = dict.fromkeys(faults, 0)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Measure, then try each fault in a child process."""
        self._items = {item.nodeid: item for item in session.items}
        for item in session.items:
            _end_at_once(item)
        self._reach = self._measured()
        print(f"{len(self._items)} tests, {sum(self._reach.seconds.values()):.0f} s", flush=True)
        for room, faults in self._faults.items():
            for fault in faults:
                if len(self._running) >= self._jobs:
                    self._wait()
                self._running[_child(lambda fault=fault: self._try(fault))] = room, fault, time.monotonic()
        while self._running:
            self._wait()
        return True

    def _try(self, fault: Fault) -> int:
        names = self._reach.of(fault, self._budget_s)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        put_in(fault)
        passes = self._passes(names)
        for name in names:
            signal.setitimer(signal.ITIMER_VIRTUAL, MORE_S + PATIENCE * self._reach.seconds[name])  # its signal kills
            if not next(passes):
                return 1
        return 0

    def _passes(self, names: list[str]) -> Iterator[bool]:
        """Run tests one by one, and yield whether none failed so far."""
        items = [self._items[name] for name in names]
        for item, after in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            yield not item.session.testsfailed

    def _wait(self) -> None:
        pid, status = os.wait()
        room, fault, began = self._running.pop(pid)
        if os.waitstatus_to_exitcode(status) == BROKEN:
            raise SystemExit(f"cannot try {fault.name}")
        self.noticed[room] += status != 0
        word, took = "noticed " if status else "SURVIVED", f"{time.monotonic() - began:4.0f} s"
        print(
            f"{word} {took} {fault.file}:{fault.lines[0]}: {fault.before} -> {fault.after} | {fault.whole}", flush=True
        )

    def _measured(self) -> Reach:
        """Return which tests reach which lines; of files that did not change since, what `kept` says of them."""
        helpers = (path for path in (ROOT / "tests").rglob("*.py") if not path.name.startswith("test_"))
        world = _digest([*CORE.rglob("*.py"), *helpers])
        files = {name: f"{world} {_digest([item.path])}" for name, item in self._items.items()}
        known = json.loads(self._kept.read_text()) if self._kept and self._kept.exists() else {}
        known = {name: entry for name, entry in known.items() if files.get(name) == entry[0]}
        new = [name for name in files if name not in known]
        kept = self._kept or Path(f"/tmp/reach-{os.getpid()}.json")  # noqa: S108 - it is removed at once
        if new:
            pid = _child(lambda: self._measure(new, known, files, kept))
            if os.waitpid(pid, 0)[1]:
                raise SystemExit("the tests fail without any fault")
            known = json.loads(kept.read_text())
            if self._kept is None:
                kept.unlink()
        tests: dict[str, set[str]] = defaultdict(set)
        for name, (_, _, lines) in known.items():
            for line in lines:
                tests[line].add(name)
        return Reach(tests, {name: seconds for name, (_, seconds, _) in known.items()})

    def _measure(self, names: list[str], known: dict[str, object], files: dict[str, str], kept: Path) -> int:
        """Run tests without a fault, and write down what is known of them and of others."""
        traced = frozenset(str(path) for room in ROOMS for path in files_of(room))
        found, passes = dict(known), self._passes(names)
        for name in names:
            trace, began = Trace(traced), time.process_time()
            trace.begin()
            passed = next(passes)
            found[name] = files[name], time.process_time() - began, sorted(trace.end())
            if not passed:
                return 1
        kept.write_text(json.dumps(found))
        return 0


def _end_at_once(item: pytest.Item) -> None:
    """Let a property fail at its first example that fails, without a search for a smaller one."""
    from hypothesis import Phase, settings  # noqa: PLC0415 - pytest wants to import it first

    function = getattr(item.obj, "__func__", item.obj)
    for owner, name in ((function, "_hypothesis_internal_use_settings"), (item.cls, "settings")):
        known = getattr(owner, name, None)
        if isinstance(known, settings):
            left = [phase for phase in known.phases if phase not in (Phase.shrink, Phase.explain)]
            setattr(owner, name, settings(known, phases=left))


def _digest(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _child(work: Callable[[], int]) -> int:
    """Do some work in a child process that prints nothing, and end that with what the work returns."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    ended = BROKEN
    try:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        ended = work()
    finally:
        os._exit(ended)


def main() -> int:
    """Run the faults that the arguments name."""
    parser = argparse.ArgumentParser(description="Put faults into what decides and count those that tests notice.")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--rooms", nargs="+", choices=sorted(ROOMS), default=list(ROOMS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--at", nargs="+", default=[], metavar="FILE:LINE", help="all faults of these statements instead"
    )
    parser.add_argument("--budget", type=float, default=inf, help="seconds that the tests of a fault take without it")
    parser.add_argument("--reach", type=Path, help="a file that keeps which tests reach which lines")
    parser.add_argument("--least", type=float, default=95.0, help="percent that tests must notice")
    given = parser.parse_args()
    faults = chosen(given.rooms, -(-given.count // len(given.rooms)), given.seed, given.at)
    trials = Trials(faults, given.jobs, given.budget, given.reach and given.reach.absolute())
    os.chdir(ROOT)
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    sys.path[:0] = [str(ROOT / "src")]
    options = ["-q", "-s", "--no-header", "--no-summary", "-p", "no:cacheprovider", "-p", "no:randomly"]
    pytest.main([*options, "-m", "not long", "--hypothesis-profile=quick", TESTS], plugins=[trials])
    for room, tried in faults.items():
        print(f"{room}: {trials.noticed[room]} of {len(tried)} faults noticed")
    count = sum(map(len, faults.values()))
    percent = 100 * sum(trials.noticed.values()) / max(1, count)
    print(f"{percent:.1f} % of {count}")
    return 0 if percent >= given.least else 1


if __name__ == "__main__":
    sys.exit(main())
