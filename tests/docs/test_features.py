"""Each feature of the page of features names tests that exist."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.test_examples import ROOT

ROWS = [
    [cell.strip() for cell in line.split(" | ")]
    for line in (ROOT / "docs" / "reference" / "features.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith(("| --- ", "| what "))
]
NAMED = sorted({name for row in ROWS for name in re.findall(r"`tests/([a-z0-9_/]+\.py(?:::\w+)?)`", row[2])})


def test_every_feature_has_tests() -> None:
    assert len(ROWS) > 60
    assert [row for row in ROWS if len(row) != 3 or ".py" not in row[2]] == []


@pytest.mark.parametrize("named", NAMED)
def test_what_shows_a_feature_is_there(named: str) -> None:
    file, _, function = named.partition("::")
    tree = ast.parse((ROOT / "tests" / file).read_text())
    tests = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert function in tests if function else any(name.startswith("test_") for name in tests)
