from pathlib import Path

import pytest
from docs.event_kinds import EVENTS
from docs.tables import REFERENCE, TABLES, event_kinds, renew
from docs.vendors import CHART, chart_keys

from ullage.core.verdict.sentences import CURES, MEANINGS
from ullage.model.rejection import Code

PAGES = sorted(REFERENCE.glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_reference_tables_match_the_code(page: Path) -> None:
    text = page.read_text()
    assert text == renew(text), f"{page.name} is stale: run `make docs`"


def test_every_table_is_in_a_page() -> None:
    text = "".join(page.read_text() for page in PAGES)
    assert [name for name in TABLES if f"<!-- table: {name} -->" not in text] == []
    assert text.count("<!-- table: ") == text.count("<!-- end -->") == len(TABLES)


def test_a_stale_table_is_noticed() -> None:
    page = REFERENCE / "reasons.md"
    changed = page.read_text().replace("insufficient-gpu", "no-cards")
    assert renew(changed) == page.read_text() != changed


def test_every_kind_of_event_has_a_meaning_and_no_meaning_is_left_over() -> None:
    assert event_kinds() == set(EVENTS)


def test_every_reason_has_a_sentence() -> None:
    assert set(MEANINGS) == set(Code)


def test_every_reason_that_is_an_obstacle_has_a_cure() -> None:
    assert set(Code) - set(CURES) == {Code.STARTING, Code.CLOSED, Code.NOTHING_PENDING, Code.RUNNING}


def test_the_chart_watches_the_annotations_of_all_vendors() -> None:
    assert CHART.read_text() == chart_keys(), "run `make docs`"
