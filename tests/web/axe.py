"""Checks a page by axe-core, which the browser driver injects: neither the repository nor a server has it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.web.browser import Browser

PACKAGE = "axe_core_python"
FOUND = find_spec(PACKAGE)
MISSING = FOUND is None

_RUN = """
return axe.run(document, {resultTypes: ["violations"]}).then(found => found.violations.map(each =>
    `${each.id} (${each.impact}): ${each.nodes.map(node => node.target.join(" ")).slice(0, 4).join(" | ")}`));
"""


def violations(window: Browser) -> Any:
    """Return what axe-core finds wrong in what the window shows, a line for each rule."""
    assert FOUND is not None
    assert FOUND.origin is not None
    if not window.run("return typeof axe === 'object'"):
        window.run((Path(FOUND.origin).parent / "axe.min.js").read_text(encoding="utf-8"))
    return window.run(_RUN)
