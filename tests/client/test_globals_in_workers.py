"""Globals of a script stay in a worker between calls: real scripts, with one real worker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from ullage.client.pickling import SessionPickles
from ullage.worker.received import load

OPTIONS = 'max_instances=1, resreq="cpu=0.1,mem=128m"'


@pytest.fixture
def outcome(http: Any, tmp_path: Path) -> Any:
    """Run a script, whose `session` has one worker, and return what its `seen` is."""

    def run(definitions: str, calls: str) -> Any:
        opened = f"with ullage.connect() as client, client.session({OPTIONS}) as session:"
        body = dedent(calls).strip().replace("\n", "\n    ")
        script = tmp_path / "script.py"
        script.write_text(
            f"import json, ullage\n{dedent(definitions)}\nif __name__ == '__main__':\n  {opened}\n    {body}\n"
            "  print(json.dumps(seen))\n"
        )
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_a_global_a_cache_and_a_class_keep_what_calls_leave_in_them(outcome):
    definitions = """
    from functools import lru_cache, partial
    count, models, loads = 0, {}, []

    class Registry:
        entries = None

        @classmethod
        def add(cls, value):
            cls.entries = [*(cls.entries or ()), value]
            return len(cls.entries)

    @lru_cache
    def load(name):
        loads.append(name)
        return name.upper()

    def one(value):
        global count
        count += 1
        models.setdefault(value, count)
        return count, len(models), load("m"), len(loads), Registry.add(value)

    def other(value):
        return one(value)
    """
    calls = """
    seen = [session.submit(one, 1).result(), session.submit(one, 1).result()]
    seen.append(session.submit(partial(one, 2)).result())
    seen.append(session.submit(other, 3).result())
    seen += session.map(other, [4, 5], chunksize=2)
    seen.append([session.submit(load, "m").result(), len(session.submit(lambda: loads).result())])
    """
    assert outcome(definitions, calls) == [
        [1, 1, "M", 1, 1],
        [2, 1, "M", 1, 2],
        [3, 2, "M", 1, 3],
        [4, 3, "M", 1, 4],
        [5, 4, "M", 1, 5],
        [6, 5, "M", 1, 6],
        ["M", 1],
    ]


def test_an_initializer_changes_globals_in_place_for_all_functions(http: Any, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        dedent(f"""
        import ullage
        MODELS, TIMES = {{}}, []

        def begin(name):
            TIMES.append(name)
            MODELS[name] = name.upper()

        def first(number):
            return MODELS["x"], number, len(TIMES)

        def second(number):
            return MODELS["x"], -number, len(TIMES)

        if __name__ == "__main__":
            with ullage.Executor(initializer=begin, initargs=("x",), {OPTIONS}) as executor:
                seen = [executor.submit(first, 1).result(), *executor.map(second, [2, 3])]
                print(*seen, executor.submit(first, 4).result())
        """)
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.stdout == "('X', 1, 1) ('X', -2, 1) ('X', -3, 1) ('X', 4, 1)\n", done.stderr


def test_a_function_sees_the_values_that_it_was_sent_with(outcome):
    definitions = """
    rate, kept = 1, []

    def first():
        kept.append(rate)
        return rate, len(kept)

    def second():
        kept.append(rate)
        return rate, len(kept)

    def make(number):
        def inner():
            return number
        return inner

    def helper():
        return "old"

    def using():
        return helper()
    """
    calls = """
    seen = [session.submit(first).result()]
    rate = 2
    seen += [session.submit(each).result() for each in (second, first, second)]
    seen.append([session.submit(make(number)).result() for number in range(3)])
    seen.append(session.submit(using).result())
    exec("def helper(): return 'new'")
    exec("def using(): return helper()")
    seen.append(session.submit(using).result())
    """
    assert outcome(definitions, calls) == [[1, 1], [2, 2], [1, 3], [2, 4], [0, 1, 2], "old", "new"]


def test_a_changed_global_reaches_what_is_sent_later_and_not_the_same_function_again(outcome):
    definitions = """
    from functools import partial
    rate, table = 1, {"rate": 1}

    def first(_=None):
        return rate, table["rate"]
    """
    calls = """
    seen = [session.submit(first).result()]
    rate, table["rate"] = 2, 2
    seen.append(session.submit(first).result())
    seen += session.map(first, [0])
    seen.append(session.submit(partial(first, 0)).result())
    with client.session(max_instances=1, resreq="cpu=0.1,mem=128m") as another:
        seen.append(another.submit(first).result())
    """
    assert outcome(definitions, calls) == [[1, 1], [1, 1], [1, 1], [2, 2], [2, 2]]


def test_a_module_that_workers_import_sends_names_only() -> None:
    pickles = SessionPickles()
    data = pickles.dump(json.dumps)
    assert load(data).value is json.dumps
    assert load(data).received == ()


def test_objects_of_classes_with_slots_come_back(outcome):
    definitions = """
    from dataclasses import dataclass

    class Point:
        __slots__ = ("x", "__hidden")

        def __init__(self, x):
            self.x = x
            self.__hidden = 2 * x

        def all(self):
            return [self.x, self.__hidden]

    class Named(Point):
        __slots__ = "name"

    @dataclass(slots=True, frozen=True)
    class Row:
        number: int
        text: str = "none"

    def moved(point):
        assert not hasattr(point, "__dict__")
        return Point(point.x + 1)

    def named(name):
        found = Named(1)
        found.name = name
        return found
    """
    calls = """
    seen = [session.submit(moved, Point(1)).result().all(), session.submit(Row, 3).result() == Row(3)]
    other = session.submit(named, "a").result()
    seen += [other.all(), other.name, session.submit(repr, Row(4)).result()]
    """
    assert outcome(definitions, calls) == [[2, 4], True, [1, 2], "a", "Row(number=4, text='none')"]
