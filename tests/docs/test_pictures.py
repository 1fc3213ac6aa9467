"""Every picture of the documentation is one that the script takes, and a page shows it."""

import re
import struct

from tests.docs.test_examples import ROOT
from tests.docs.test_names import PAGES

FOLDER = ROOT / "docs" / "images"


def test_every_picture_is_taken_by_the_script_and_shown_by_a_page() -> None:
    script = (ROOT / "tests" / "web" / "picture.py").read_text()
    pictures = {path.stem for path in FOLDER.iterdir()}
    assert len(pictures) >= 5
    assert {name for name in pictures if f'"{name}' not in script} == set()
    shown = {name for page in PAGES for name in re.findall(r"!\[[^\]]+\]\(\S*images/([\w-]+)\.png\)", page.read_text())}
    assert shown == pictures


def test_pictures_are_of_a_size_that_a_page_can_show() -> None:
    for path in FOLDER.iterdir():
        width, height = struct.unpack(">II", path.read_bytes()[16:24])
        assert (width, 600 <= height <= 1400) == (1280, True), path.name
        assert path.stat().st_size < 300_000, path.name
