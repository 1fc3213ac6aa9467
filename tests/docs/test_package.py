"""The wheel has what it needs and nothing else, reads well on an index, and runs with what it declares alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.docs.test_examples import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCE = ROOT / "src" / "ullage"
pytest.importorskip("hatchling", reason="hatchling is in the lock, and not installed here")
pytest.importorskip("hatch_fancy_pypi_readme", reason="it is in the lock, and not installed here")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def described(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    kept = {path.relative_to(SOURCE.parent).as_posix() for path in SOURCE.rglob("*") if path.is_file()}
    kept = {name for name in kept if "__pycache__" not in name}
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    assert {name for name in packed if ".dist-info/" not in name} == kept
    assert {"ullage/py.typed", "ullage/web/static/index.html", "ullage/model/profiles/nvidia.toml"} <= packed
    assert any(name.startswith("ullage/storage/migrations/versions/") for name in packed)


def test_an_index_renders_the_description_without_links_into_the_repository(described: Message) -> None:
    markdown = pytest.importorskip("readme_renderer.markdown", reason="readme-renderer is not installed here")
    assert described["Description-Content-Type"] == "text/markdown"
    text = described.get_payload()
    rendered = markdown.render(text)
    assert rendered, "an index would show the source"
    assert re.findall(r'(?:href|src)="(?!https://|#)([^"]*)"', rendered) == []
    assert "Two commands" in rendered


def test_the_metadata_are_those_that_an_index_accepts(described: Message) -> None:
    known = pytest.importorskip("trove_classifiers", reason="trove-classifiers is not installed here")
    classifiers = described.get_all("Classifier") or []
    assert classifiers == sorted(classifiers)
    assert set(classifiers) <= known.classifiers
    assert described["License-Expression"] == "Apache-2.0"
    assert described["Summary"] == PROJECT["description"]
    assert len(described["Summary"]) <= 512
    assert described["Project-URL"] is None, "there is no public address"


def test_the_page_about_installing_names_every_extra() -> None:
    text = (ROOT / "docs" / "how-to" / "install.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == set(PROJECT["optional-dependencies"])


def closure(wanted: list[str]) -> Iterator[metadata.Distribution]:
    """The distributions that requirements need, as they are installed here."""
    left, seen = [Requirement(each) for each in wanted], set()
    while left:
        asked = left.pop()
        key = (asked.name.lower(), frozenset(asked.extras))
        if key in seen:
            continue
        seen.add(key)
        found = metadata.distribution(asked.name)
        yield found
        needed = [Requirement(each) for each in found.requires or ()]
        extras = asked.extras or {""}
        left += [each for each in needed if not each.marker or any(each.marker.evaluate({"extra": e}) for e in extras)]


def environment(folder: Path, wheel: Path, *wanted: str) -> Path:
    """A virtual environment with the wheel and the requirements, which are linked to those that are installed here."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    for distribution in closure([*PROJECT["dependencies"], *wanted]):
        for top in {Path(file.parts[0]) for file in distribution.files or () if file.parts[0] != ".."}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution.locate_file(str(top)))))
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(folder / "bin" / "python"),
        "install",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*pip, "--quiet", str(wheel)], check=True)
    return folder / "bin" / "ullage"


def run(program: Path, home: Path, *words: str) -> str:
    scripts = f"{program.parent}{os.pathsep}{sysconfig.get_path('scripts')}"
    env = {"ULLAGE_HOME": str(home), "PATH": f"{scripts}{os.pathsep}/usr/bin:/bin", "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([str(program), *words], capture_output=True, text=True, timeout=120, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_runs_with_the_dependencies_that_it_declares(tmp_path: Path, wheel: Path) -> None:
    program = environment(tmp_path / "env", wheel)
    assert "submit" in run(program, tmp_path / "home", "--help")
    assert PROJECT["name"] in run(program, tmp_path / "home", "version")
    assert "packages" in run(program, tmp_path / "home", "doctor")


@pytest.mark.long
def test_the_wheel_runs_a_program_with_the_extra_for_a_server(tmp_path: Path, wheel: Path) -> None:
    program = environment(tmp_path / "env", wheel, *PROJECT["optional-dependencies"]["server"])
    try:
        assert run(program, tmp_path / "home", "run", "-r", "cpu=1,mem=64m", "--", "echo", "hello") == "hello\n"
    finally:
        run(program, tmp_path / "home", "down")
