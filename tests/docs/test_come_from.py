"""The pages for those who come from another scheduler translate to what exists, and say what is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ullage
from tests.docs.test_examples import ROOT
from ullage.client.client import Client
from ullage.client.mapping import MapOptions
from ullage.client.session import Session
from ullage.client.spec import SessionOptions
from ullage.wire.dialect import TENSOR_FUSION, PodReader, PodSettings
from ullage.wire.pod.gate import gate_of
from ullage.wire.pod.keys import DOMAIN

PAGES = sorted((ROOT / "docs" / "how-to").glob("come-from-*.md"))
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def rows(page: Path) -> list[tuple[str, ...]]:
    """The rows of the tables of a page, without titles."""
    lines = re.findall(r"^\| (.*) \|$", page.read_text(), re.MULTILINE)
    return [tuple(line.split(" | ")) for line in lines if not line.startswith(("---", "with "))]


@pages
def test_a_page_translates_habits_and_says_what_differs_and_what_is_missing(page: Path) -> None:
    text = page.read_text()
    assert len(rows(page)) > 8
    assert all(len(row) == 2 and all(row) for row in rows(page))
    assert "## What differs" in text
    assert "## What is missing" in text


@pages
def test_annotations_that_a_page_names_are_read(page: Path) -> None:
    source = "".join(path.read_text() for path in (ROOT / "src" / "ullage").rglob("*.py"))
    for domain, name in re.findall(r"`(ullage\.io|tensor-fusion\.ai)/([a-z-]+)[`:]", page.read_text()):
        assert domain in (DOMAIN, TENSOR_FUSION)
        assert f'"{name}"' in source or f"{domain}/{name}" == gate_of(), f"{domain}/{name}"


def test_a_pod_in_the_words_of_tensor_fusion_asks_for_what_the_page_says() -> None:
    annotations = {"gpu-count": "1", "compute-percent-request": "50", "vram-request": "20Gi", "qos": "high"}
    pod = {
        "metadata": {
            "name": "p",
            "namespace": "n",
            "uid": "u",
            "annotations": {f"tensor-fusion.ai/{name}": value for name, value in annotations.items()},
        },
        "spec": {"containers": [{"name": "c"}]},
    }
    part = PodReader(PodSettings())(pod).requirement.part
    assert part is not None
    assert (part.vram_bytes, part.compute_ppm) == (20 * 2**30, 500_000)


def test_the_names_of_python_that_the_page_for_ray_uses_exist() -> None:
    text = "".join(right for _, right in rows(ROOT / "docs" / "how-to" / "come-from-ray.md"))
    assert {name for name in re.findall(r"ullage\.(\w+)", text) if not name.islower() or name == "connect"} <= set(
        ullage.__all__
    )
    for kind, word in ((Client, "client"), (Session, "session")):
        assert all(hasattr(kind, name) for name in re.findall(rf"\b{word}\.(\w+)", text))
    named = set(re.findall(r"client\.session\((\w+)=", text)) | {"batch_size"}
    assert named <= set(SessionOptions.__annotations__)
    options = set(re.findall(r"map\(\.\.\., (\w+)=", text))
    assert options <= set(MapOptions.__annotations__)
