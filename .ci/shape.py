"""The shape of the source, measured: sizes, long files and functions, circles, reads by bare number.

`python .ci/shape.py` prints the figures and ends with 1 if one of them is above its limit. `--list NAME` prints where.
A limit is what the source has today, or its aim once that is reached. It may only go down.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src"
FLAT = "core/kernel/"
"""Compiled entries take flat arguments: what a call from Python costs grows with each record."""

MOST_PARAMETERS = 8
MOST_POSITIONAL = 4
LISTS = frozenset(
    [
        "select",
        "create_table",
        "Table",
        "Overload",
        "zip",
        "Group",
        "create_subprocess_exec",
        "durable",
        "pack",
        "path_of",
        "prctl",
    ]
)
"""Functions whose arguments are a list of any length, or whose library takes no keywords: position is their meaning."""
STRATEGY_ENTRIES = frozenset({"strategy.evict", "self._node", "self._pick", "self._terms"})
"""Functions of a strategy, which are compiled into the loops of the kernel."""
NEAR = 2
"""Lines from where a tuple is made to where it is read by number."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measure: its aim, the limit that holds today, and where it counts."""

    name: str
    aim: int
    limit: int
    where: list[str] = field(default_factory=list)
    counts_largest: bool = False
    """The figure is the largest number that a place begins with, not the number of places."""

    @property
    def value(self) -> int:
        """Return the figure."""
        return max(map(_size, self.where), default=0) if self.counts_largest else len(self.where)

    @property
    def ranked(self) -> list[str]:
        """Return the places, the largest first where they have a size."""
        return sorted(self.where, key=_size, reverse=True) if self.counts_largest else self.where


def _size(place: str) -> int:
    number, _, _ = place.partition(" ")
    return int(number)


@dataclass(frozen=True, slots=True)
class Source:
    """One file."""

    name: str
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        """Return how many lines it has."""
        return self.text.count("\n")

    @property
    def is_flat(self) -> bool:
        """Return whether its functions may take flat arguments."""
        return self.name.startswith(FLAT)


def sources() -> list[Source]:
    """Return all files of the package."""
    paths = sorted((ROOT / "ullage").rglob("*.py"))
    texts = [(path.relative_to(ROOT / "ullage").as_posix(), path.read_text()) for path in paths]
    return [Source(name, text, ast.parse(text)) for name, text in texts]


def functions(source: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function of a file."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def long_files(found: list[Source]) -> list[str]:
    """Return the lines of each file."""
    return [f"{source.lines} {source.name}" for source in found]


def long_functions(found: list[Source]) -> list[str]:
    """Return the lines of each function."""
    return [
        f"{(node.end_lineno or node.lineno) - node.lineno + 1} {source.name}:{node.lineno} {node.name}"
        for source in found
        for node in functions(source)
    ]


def many_parameters(found: list[Source]) -> list[str]:
    """Return functions with more parameters than anybody can keep in mind."""
    places = []
    for source in found:
        for node in functions(source):
            names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            count = len([name for name in names if name not in {"self", "cls"}])
            if count > MOST_PARAMETERS and not source.is_flat:
                places.append(f"{source.name}:{node.lineno} {node.name} has {count}")
    return places


def many_positional(found: list[Source]) -> list[str]:
    """Return calls with more positional arguments than a reader can tell apart."""
    places = []
    for source in found:
        entries = _kernel_entries(source)
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and not source.is_flat:
                plain = [each for each in node.args if not isinstance(each, ast.Starred)]
                name = ast.unparse(node.func)
                if len(plain) > MOST_POSITIONAL and not _takes_a_list(node.func) and name not in entries:
                    places.append(f"{source.name}:{node.lineno} {name} takes {len(plain)}")
    return places


def _kernel_entries(source: Source) -> set[str]:
    """Return the names by which a file calls functions of the kernel, which take no keywords without a cost."""
    found = set(STRATEGY_ENTRIES)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ullage.core.kernel"):
            own = [alias.asname or alias.name for alias in node.names]
            found |= {name for name in own if name.islower()}
            found |= {
                ast.unparse(each)
                for each in ast.walk(source.tree)
                if isinstance(each, ast.Attribute) and each.attr.islower() and ast.unparse(each.value) in own
            }
    return found


def _takes_a_list(function: ast.expr) -> bool:
    name = ast.unparse(function)
    return name in LISTS or name.rpartition(".")[2] in LISTS


def bare_reads(found: list[Source]) -> list[str]:
    """Return where an element is read by a bare number, further than two lines from where its name was bound.

    Indexes 0 and -1 of what is a sequence of equal things are meant too: a record has names, and a sequence is
    unpacked or iterated over.
    """
    places = []
    for source in found:
        for scope in (source.tree, *functions(source)):
            bound = _bindings(scope)
            for node in _own_nodes(scope):
                if not (isinstance(node, ast.Subscript) and _is_number(node.slice)):
                    continue
                if not isinstance(node.value, ast.Name):
                    continue
                since = bound.get(node.value.id)
                if since is None or node.lineno - since > NEAR:
                    places.append(f"{source.name}:{node.lineno} {ast.unparse(node)}")
    return places


def _bindings(scope: ast.AST) -> dict[str, int]:
    """Return the last line on which each name of a scope is bound, but to a parameter."""
    found: dict[str, int] = {}
    for node in _own_nodes(scope):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = max(found.get(node.id, 0), node.lineno)
    return found


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node is not scope:
            continue
        yield node
        waiting += ast.iter_child_nodes(node)


def _is_number(index: ast.expr) -> bool:
    if isinstance(index, ast.UnaryOp):
        index = index.operand
    return isinstance(index, ast.Constant) and isinstance(index.value, int)


def same_class_names(found: list[Source]) -> list[str]:
    """Return public class names that stand for two things."""
    places = defaultdict(list)
    for source in found:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(source.name)
    return [f"{name}: {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1]


def late_callbacks(found: list[Source]) -> list[str]:
    """Return where a callback is assigned to another object, which had to exist without it until then."""
    places = []
    for source in found:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr.startswith("on_"):
                name = ast.unparse(node)
                places += [f"{source.name}:{node.lineno} {name}"] if name != f"self.{node.attr}" else []
    return places


def circles(found: list[Source]) -> list[str]:
    """Return groups of files that import one another at run time."""
    modules = {f"ullage.{source.name[:-3].replace('/', '.')}".removesuffix(".__init__"): source for source in found}
    imports = {name: _imports(source, modules) for name, source in modules.items()}
    return [" <-> ".join(sorted(group)) for group in _components(imports) if len(group) > 1]


def _imports(source: Source, modules: dict[str, Source]) -> set[str]:
    names: set[str] = set()
    for node in source.tree.body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= inner & modules.keys() or {node.module}
    return names & modules.keys()


def _components(imports: dict[str, set[str]]) -> list[set[str]]:
    """Return the strongly connected components (Kosaraju)."""
    order: list[str] = []
    seen: set[str] = set()
    for name in imports:
        _visit(name, imports, seen, order)
    back = defaultdict(set)
    for name, uses in imports.items():
        for used in uses:
            back[used].add(name)
    seen.clear()
    found = []
    for name in reversed(order):
        group: list[str] = []
        _visit(name, back, seen, group)
        if group:
            found.append(set(group))
    return found


def _visit(name: str, edges: dict[str, set[str]], seen: set[str], order: list[str]) -> None:
    stack = [(name, iter(edges.get(name, ())))] if name not in seen else []
    seen.add(name)
    while stack:
        current, rest = stack[-1]
        following = next((each for each in rest if each not in seen), None)
        if following is None:
            order.append(current)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(edges.get(following, ()))))


def figures(found: list[Source]) -> list[Figure]:
    """Return every measure of the source."""
    return [
        Figure("longest file, lines", 500, 500, long_files(found), counts_largest=True),
        Figure("longest function, lines", 64, 64, long_functions(found), counts_largest=True),
        Figure("functions of more than 8 parameters", 0, 0, many_parameters(found)),
        Figure("calls with more than 4 positional arguments", 0, 0, many_positional(found)),
        Figure("reads by a bare number", 0, 0, bare_reads(found)),
        Figure("class names of two classes", 0, 0, same_class_names(found)),
        Figure("callbacks assigned to another object", 0, 0, late_callbacks(found)),
        Figure("circles of imports", 0, 0, circles(found)),
    ]


def main() -> int:
    """Print the figures; return 1 if one is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", metavar="NAME", help="print the places of the figures whose name has this in it")
    wanted = parser.parse_args().list
    found = sources()
    by_folder = Counter[str]()
    for source in found:
        by_folder[source.name.partition("/")[0]] += source.lines
    print("lines:", by_folder.total(), " ".join(f"{name} {count}" for name, count in by_folder.most_common()))
    above = 0
    for figure in figures(found):
        mark = "" if figure.value <= figure.limit else f"  above its limit of {figure.limit}"
        above += bool(mark)
        print(f"{figure.name}: {figure.value} (aim {figure.aim}){mark}")
        if wanted and wanted in figure.name:
            print("\n".join(f"  {place}" for place in figure.ranked))
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
