"""The documentation is built as a site that a reader can search, and that loads nothing from elsewhere."""

import functools
import http.server
import importlib
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docs.site import ROOT, SITE, build, faults

from tests.web.browser import MISSING, browser

pytest.importorskip("zensical", reason="zensical is in the lock, and not installed here")

_SEARCH = "[...document.querySelectorAll('*')].find(each => each.shadowRoot)?.shadowRoot"
"""The root of the search dialog."""

PAGE = '<html id="top"><a href="b/#part">b</a><img src="x.svg"></html>'


def small(site: Path, page: str = PAGE) -> Path:
    (site / "b").mkdir()
    (site / "b" / "index.html").write_text('<h2 id="part">Part</h2><a href="..">up</a>')
    (site / "x.svg").write_text("<svg/>")
    (site / "index.html").write_text(page)
    return site


def test_a_site_whose_links_lead_somewhere_has_no_faults(tmp_path: Path) -> None:
    assert list(faults(small(tmp_path))) == []


@pytest.mark.parametrize(
    ("element", "fault"),
    [
        ('<a href="c/">c</a>', "c/ leads nowhere"),
        ('<a href="../../etc/hosts">c</a>', "leads nowhere"),
        ('<img src="y.svg">', "y.svg leads nowhere"),
        ('<a href="b/#other">c</a>', "b/#other: there is no such anchor"),
        ('<a href="#other">c</a>', "#other: there is no such anchor"),
        ('<script src="https://cdn.example/x.js"></script>', "is loaded from elsewhere"),
        ('<link rel="stylesheet" href="//fonts.example/x.css">', "is loaded from elsewhere"),
        ('<img src="http://badge.example/x.svg">', "is loaded from elsewhere"),
    ],
)
def test_a_link_that_leads_nowhere_and_what_is_loaded_from_elsewhere_are_faults(
    tmp_path: Path, element: str, fault: str
) -> None:
    (found,) = faults(small(tmp_path, PAGE + element))
    assert found.endswith(fault)


def test_a_link_to_another_site_is_no_fault(tmp_path: Path) -> None:
    assert list(faults(small(tmp_path, PAGE + '<a href="https://www.python.org/">Python</a>'))) == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of a copy of the project, so that builds at the same time do not meet."""
    root = tmp_path_factory.mktemp("project")
    shutil.copy(ROOT / "zensical.toml", root)
    shutil.copytree(ROOT / "docs", root / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "src").symlink_to(ROOT / "src")
    build(root)
    return root / SITE


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.long
def test_the_api_page_has_every_public_name(site: Path) -> None:
    text = (site / "reference" / "python-api" / "index.html").read_text()
    anchors = set(re.findall(r'id="([\w.]+)"', text))
    for module in ("ullage", "ullage.allocator"):
        names = set(importlib.import_module(module).__all__) - {"__version__"}
        assert [name for name in names if f"{module}.{name}" not in anchors] == []


@pytest.mark.long
@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
def test_a_reader_finds_a_page_by_search_and_nothing_is_loaded_from_elsewhere(
    site: Path, address: str, tmp_path: Path
) -> None:
    assert list(faults(site)) == []
    with browser(tmp_path) as window:
        window.open(address + "tutorial/first-steps/")
        window.run("document.querySelector('.md-search__button').click()")
        window.until(f"{_SEARCH}?.querySelector('input')")
        window.run(f"""
            const field = {_SEARCH}.querySelector('input')
            field.value = 'quotas per namespace'
            field.dispatchEvent(new Event('input', {{ bubbles: true }}))
        """)
        window.until(f"[...{_SEARCH}.querySelectorAll('a')].some(link => link.href.includes('/how-to/set-quotas/'))")
        loaded = window.run("return performance.getEntriesByType('resource').map(each => each.name)")
        assert loaded
        assert [name for name in loaded if not name.startswith(address)] == []
        assert window.complaints() == []


@pytest.fixture(scope="module")
def package() -> Any:
    """The package as the documentation reads it, without an import."""
    griffe = pytest.importorskip("griffe", reason="griffelib is in the lock, and not installed here")
    return griffe.load("ullage", search_paths=[str(ROOT / "src")], resolve_aliases=True)


@pytest.mark.parametrize("module", ["ullage", "ullage.allocator", "ullage.client.allocations"])
def test_every_public_name_has_a_docstring(package: Any, module: str) -> None:
    home = package[module.removeprefix("ullage.")] if "." in module else package
    missing = []
    for name in set(home.exports or ("Allocations",)) - {"__version__"}:
        found = home[name].final_target if home[name].is_alias else home[name]
        inside = found.all_members.values() if found.is_class else ()
        functions = [each for each in inside if each.is_function and not each.name.startswith("_")]
        missing += [each.path for each in (found, *functions) if not each.docstring]
    assert missing == []
