"""Files, links, verbs and options in the documents exist."""

import re
from pathlib import Path

import pytest
from docs.command_line import subparsers

from ullage.cli.main import build_parser
from ullage.cli.verbs import VERBS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
COMMAND = re.compile(r"^ *\$ (.*)$", re.MULTILINE)
IN_REPOSITORY = re.compile(
    r"(?:src|tests|docs|benchmarks|\.ci)(?:/[\w.-]+)+/?|[\w-]+\.lock|pyproject\.toml|\.importlinter"
)

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def anchors(page: Path) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def commands(text: str) -> set[tuple[str, ...]]:
    """Words after `ullage` in console blocks and in code between backticks."""
    lines = [
        *COMMAND.findall(text),
        *CODE.findall(FENCE.sub("", text)),
        *re.findall(r"^ {4}(ullage .*)$", text, re.MULTILINE),
    ]
    return {tuple(line.split()[1:]) for line in lines if line.startswith("ullage ")}


@pages
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        if link.startswith("https://"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.is_file(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(target), f"{link}: there is no such heading"


@pages
def test_named_files_exist(page: Path) -> None:
    for code in CODE.findall(FENCE.sub("", page.read_text())):
        if IN_REPOSITORY.fullmatch(code):
            assert (ROOT / code).exists(), f"{code} does not exist"


@pages
def test_named_verbs_and_options_exist(page: Path) -> None:
    parsers = subparsers(build_parser())
    for words in commands(page.read_text()):
        verb, *rest = [word for word in words if word != "..."]
        if verb in ("VERB", "(cli)") or verb.startswith("--"):
            continue
        assert verb in VERBS, f"ullage {verb} does not exist"
        known = {option for action in parsers[verb]._actions for option in action.option_strings}
        for nested in subparsers(parsers[verb]).values():
            known |= {option for action in nested._actions for option in action.option_strings}
        own = rest[: rest.index("--")] if "--" in rest else rest
        asked = {word.partition("=")[0] for word in own if re.fullmatch(r"--?[a-z].*", word)}
        assert asked <= known, f"ullage {verb} has no {asked - known}"


@pages
def test_named_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = page.read_text()
    lines = [*COMMAND.findall(text), *CODE.findall(text)]
    assert {match for line in lines for match in re.findall(r"^make ([a-z-]+)", line)} <= targets


def test_every_page_is_in_the_map() -> None:
    folder = ROOT / "docs"
    listed = set(LINK.findall((folder / "README.md").read_text()))
    assert listed == {str(page.relative_to(folder)) for page in folder.rglob("*.md")} - {"README.md"}
