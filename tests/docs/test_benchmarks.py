"""Every benchmark that `make bench` names can be run by its name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from benchmarks import extender

from ullage.wire.extender import ExtenderArgs

FOLDER = Path(__file__).parents[2] / "benchmarks"


def _tree(name: str) -> ast.Module:
    return ast.parse((FOLDER / f"{name}.py").read_text())


def _named() -> tuple[str, ...]:
    """Return the names that `make bench` runs; the module itself would compile what decides."""
    for node in _tree("__main__").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ALL":
            names: tuple[str, ...] = ast.literal_eval(node.value)
            return names
    raise AssertionError("no names")


@pytest.mark.parametrize("name", _named())
def test_the_main_of_a_benchmark_has_no_parameters_and_ignores_the_command_line(name: str) -> None:
    tree = _tree(name)
    mains = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main"]
    assert [len(main.args.args) for main in mains] == [0]
    assert "sys.argv" not in ast.unparse(tree)


def test_the_extender_that_is_measured_answers() -> None:
    front, cluster = extender.front(3)
    names = list(cluster.allocator.fleet.row_of)
    for number in range(3):
        found = front.filter(ExtenderArgs(extender.pod(f"p{number}", "1"), node_names=names))
        assert found.node_names
