"""Distributions as an installer leaves them: a module and its metadata in a folder of the path."""

from __future__ import annotations

import tomllib
from pathlib import Path


def install(site: Path, pyproject: str, **modules: str) -> Path:
    """Put modules and the entry points of a `pyproject.toml` where Python finds them; the folder."""
    project = tomllib.loads(pyproject)["project"]
    name, version = project["name"], project["version"]
    metadata = site / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = project["entry-points"].items()
    sections = ("\n".join([f"[{group}]", *(f"{k} = {v}" for k, v in entries.items())]) for group, entries in groups)
    (metadata / "entry_points.txt").write_text("\n".join(sections))
    for module, text in modules.items():
        (site / f"{module}.py").write_text(text)
    return site
