"""Names that tests, benchmarks and the tools of the docs import from the package: each of them is there.

mypy reads the package alone. A name that was changed there breaks the whole module of tests that imports it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parents[1]
FOLDERS = "tests", "benchmarks", "docs"


def imported(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the module and the name of each import from the package."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "ullage":
            yield from ((node.lineno, node.module, alias.name) for alias in node.names)


def is_there(module: str, name: str) -> bool:
    """Return whether a module has a name, or is a package that has a module of that name."""
    try:
        return hasattr(import_module(module), name) or find_spec(f"{module}.{name}") is not None
    except ModuleNotFoundError:
        return False


def main() -> int:
    """Print the names that are not there and return 1 if there are some."""
    paths = sorted(path for folder in FOLDERS for path in (HERE / folder).rglob("*.py"))
    missing = [
        f"{path.relative_to(HERE)}:{line}: {module} has no {name}"
        for path in paths
        for line, module, name in imported(path)
        if not is_there(module, name)
    ]
    for each in missing:
        print(each)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
