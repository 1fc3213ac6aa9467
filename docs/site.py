"""Build the documentation as a site in build/site: `python -m docs.site`, or `make site`.

The build fails for a link that leads nowhere, and for a script, style, font or image that a reader's browser would
load from elsewhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

ROOT = Path(__file__).parents[1]
SITE = Path("build") / "site"
_LOADED = {"audio", "embed", "iframe", "img", "link", "script", "source", "video"}
"""Elements whose address the browser loads by itself; that of an `a` only on a click."""
_DOCSTRING = "griffe: "
"""How a line begins that reports a docstring which cannot be read."""
_TOP = {"", "__skip", "__tabbed"}
_CLIENT_SIDE = {"canonical", "sitemap"}


class Page(HTMLParser):
    """The anchors of a page, and the addresses in it with their elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.addresses: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what one element says."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if given.get("rel") not in _CLIENT_SIDE:
            self.addresses += [(tag, given[name]) for name in ("href", "src") if name in given]


def build(root: Path = ROOT) -> Path:
    """Build the site of the project in `root`; return its folder.

    Raises:
        SystemExit: the generator found a fault, or is not installed.

    """
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    plain = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=root, env=plain, capture_output=True, text=True, check=False)  # noqa: S603 - the command above
    if done.returncode or _DOCSTRING in done.stdout + done.stderr:
        raise SystemExit(done.stdout + done.stderr)
    return root / SITE


def faults(site: Path) -> Iterator[str]:
    """Yield a sentence for each address in the site that leads nowhere or that is loaded from elsewhere."""
    pages = {file: Page(file.read_text()) for file in sorted(site.rglob("*.html")) if file.name != "404.html"}
    for file, page in pages.items():
        for tag, address in page.addresses:
            where = f"{file.relative_to(site)}: {address}"
            parts = urlsplit(address)
            if parts.scheme == "data":
                continue
            if parts.scheme or parts.netloc:
                if tag in _LOADED:
                    yield f"{where} is loaded from elsewhere"
                continue
            path, anchor = urldefrag(address)
            target = (file.parent / unquote(path)).resolve() if path else file
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or site.resolve() not in target.resolve().parents:
                yield f"{where} leads nowhere"
            elif target in pages and unquote(anchor) not in pages[target].anchors | _TOP:
                yield f"{where}: there is no such anchor"


def main() -> int:
    """Build the site and print what is wrong with it; return the exit code."""
    site = build().resolve()
    found = list(faults(site))
    sys.stdout.write("".join(f"{fault}\n" for fault in found) or f"{SITE}\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
