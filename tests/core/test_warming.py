"""After warming nothing is left to compile: what is decided first is decided as fast as what comes later."""

import inspect
import os
import subprocess
import sys
from importlib import import_module

import pytest

from ullage.core.kernel.compiling import tiers
from ullage.core.warming import steps

pytestmark = pytest.mark.timeout(900)

ROUTES = ("test_zone_routes", "test_zone_reasons", "test_preemption", "test_gang", "test_consolidation", "test_cycle")
"""Modules whose tests take the ways to a place: finding, gangs, victims, moves, sessions; with and without zones."""

MEASURES = ("test_fragmentation",)
"""Modules whose tests measure what metrics tell."""

NOT_DECISIONS = {"part_of"}
"""Called from Python only by oracles in tests."""


def compiled_so_far() -> set[tuple[str, str, str]]:
    """Module, name and argument types of each compiled function there is."""
    return {
        (each.py_func.__module__, each.py_func.__name__, str(types))
        for each in tiers._TIER.functions
        for types in each.signatures
    }


def left_to_compile() -> list[str]:
    """What the routes compile after warming, each with the first test that did."""
    import_module("tests.conftest")  # the profile of properties: no example fails because the machine is busy
    modules = [import_module(f"tests.core.{name}") for name in (*ROUTES, *MEASURES)]
    for step in steps():
        step()
    known, found = compiled_so_far(), []
    for module in modules:
        for name, test in vars(module).items():
            if name.startswith("test_") and callable(test) and not inspect.signature(test).parameters:
                test()
                now = compiled_so_far()
                found += [f"{of}.{what} by {name}" for of, what, _ in now - known if what not in NOT_DECISIONS]
                known = now
    return found


def test_no_decision_waits_for_the_compiler():
    """In a process of its own: in this one others have compiled already."""
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        pytest.skip("nothing is compiled here")
    code = "from tests.core.test_warming import left_to_compile as left; print(*left(), sep='\\n', end='')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-4000:]
