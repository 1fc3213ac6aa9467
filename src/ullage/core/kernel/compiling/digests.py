"""Digests of the source files that a function depends on, by which compiled code is cached.

They follow from the contents of the files, not from times or paths: a copy of a checkout has the same digests.
"""

from __future__ import annotations

import ast
import marshal
import re
import sys
from functools import cache
from hashlib import sha256
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FunctionType
from typing import Any

_FOREIGN = sys.stdlib_module_names | {"numba", "numpy", "llvmlite"}
"""Packages whose sources are left out: the compiler checks its own version."""

_AS = r"(?:[ \t]+as[ \t]+\w+)?"
_COMMENT = re.compile(r"#.*")
_IMPORT_LINE = re.compile(r"^.*\bimport\b", re.MULTILINE)
_IMPORT = re.compile(
    rf"[ \t]*(?:import[ \t]+(?P<name>\w[\w.]*){_AS}"
    rf"|from[ \t]+(?P<module>\w[\w.]*)[ \t]+import[ \t]+(?P<names>\([^()]*\)|\w+{_AS}(?:,[ \t]*\w+{_AS})*))"
    r"[ \t]*(?:#.*)?$",
    re.MULTILINE,
)


def sources_of_function(function: Any) -> bytes:
    """Return the digest of the sources of the file that a function is in."""
    return sources_of(Path(function.__code__.co_filename))


@cache
def sources_of(path: Path) -> bytes:
    """Return a digest of a source file and of all files that it imports, directly or indirectly.

    A function is compiled together with the functions and constants of other files that it uses. The compiler's own
    cache looks at the file of the function only.
    """
    found, waiting = {path}, [path]
    while waiting:
        new = _imports(waiting.pop()) - found
        found |= new
        waiting += new
    return sha256(b"".join(sorted(map(_content, found)))).digest()


def digest_of(*values: object) -> bytes:
    """Return a digest of numbers, texts, tuples and functions; that of a function covers its sources and its closure.

    For a function that comes from no file it covers its byte code.

    Raises:
        TypeError: a value of another type is among them.

    """
    digest = sha256()
    for value in values:
        function = getattr(value, "py_func", value)
        if isinstance(function, FunctionType):
            code = function.__code__
            name = f"{function.__module__}:{function.__qualname__}:{code.co_firstlineno}"
            own = sources_of_function(function) if is_in_file(function) else marshal.dumps(code)
            digest.update(name.encode() + sha256(own).digest() + digest_of(*closure_of(function)))
        elif isinstance(value, tuple):
            digest.update(b"tuple" + digest_of(*value))
        elif value is None or isinstance(value, int | float | str | bytes):
            digest.update(sha256(f"{type(value).__name__} {value!r}".encode()).digest())
        else:
            raise TypeError(f"{value!r} has no digest: compiled functions close over numbers, texts and functions")
    return digest.digest()


def closure_of(function: Any) -> tuple[object, ...]:
    """Return the values that a function closes over."""
    return tuple(cell.cell_contents for cell in function.__closure__ or ())


def is_in_file(function: Any) -> bool:
    """Return whether the sources of a function, and of all functions that it closes over, can be read."""
    function = getattr(function, "py_func", function)
    if not isinstance(function, FunctionType):
        return True
    return Path(function.__code__.co_filename).is_file() and all(map(is_in_file, closure_of(function)))


@cache
def _content(path: Path) -> bytes:
    return sha256(path.read_bytes()).digest()


@cache
def _imports(path: Path) -> frozenset[Path]:
    """Return the source files that a source file imports, at its top or in its functions."""
    text = path.read_text(encoding="utf-8")
    names = plainly_imported(text)
    return frozenset(filter(None, map(_source, sorted(imported(text) if names is None else names))))


def imported(text: str) -> set[str]:
    """Return the modules that a source imports, and the names that it imports from them, which may be modules."""
    names = set[str]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def plainly_imported(text: str) -> set[str] | None:
    """Return the same without parsing; None unless each line with the word `import` is a plain import.

    An import in a docstring is included. Parsing takes ten times as long, at each start of a process.
    """
    names = set[str]()
    for line in _IMPORT_LINE.finditer(text):
        found = _IMPORT.match(text, line.start())
        if found is None or text.endswith("\\\n", 0, line.start()):
            return None
        if found["name"]:
            names.add(found["name"])
            continue
        parts = _COMMENT.sub("", found["names"].strip("()")).split(",")
        names |= {found["module"]} | {f"{found['module']}.{part.split()[0]}" for part in parts if part.strip()}
    return names


@cache
def _source(name: str) -> Path | None:
    """Return the file of a module; None if its contents are left out or there is no such module."""
    if name.partition(".")[0] in _FOREIGN:
        return None
    spec = _spec(name)
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None


@cache
def _spec(name: str) -> ModuleSpec | None:
    """Return the location of a module without importing any: an import may have effects, or fail."""
    parent, _, _ = name.rpartition(".")
    above = _spec(parent) if parent else None
    if parent and (above is None or above.submodule_search_locations is None):
        return None  # a name in a module, not a module
    places = None if above is None else list(above.submodule_search_locations or ())
    found = (finder.find_spec(name, places) for finder in sys.meta_path)
    return next((spec for spec in found if spec is not None), None)
