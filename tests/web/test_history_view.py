"""The history of the page: charts and tables of a known past, with the figures that the server gives."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.past import USERS, fill, name_of

from tests.web.browser import MISSING, Browser, browser
from tests.web.stage import Server, enter, go
from tests.web.test_views import click_on, text, write
from ullage.model.history import SessionHistory
from ullage.model.past_state import PastState
from ullage.service.store_port import PutHistory
from ullage.storage.open import open_store

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not on PATH: {', '.join(MISSING)}"),
    pytest.mark.timeout(900),
]

PAGE = 40
SESSIONS = 119
"""One each six hours of 30 days, each for an hour with half a card and one core: 0.49 and 0.98 hours.

With `odd` they fill whole pages, after which there is none.
"""
HOSTILE = "<img src=x onerror=document.title='broken'>"

USE = "[aria-label='Use by group']"
LANES = "[aria-label='Sessions of the period']"
NAMES = f'[...document.querySelectorAll("{LANES} tbody th")].map(e => e.textContent)'
GROUPS = f'[...document.querySelectorAll("{USE} tbody tr")].map(e => e.innerText.replace(/\\s+/g, " "))'
BARS = "[...document.querySelectorAll('svg.stacks rect.bar')]"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = Server(tmp_path_factory.mktemp("server"))
    store, now = open_store(str(found.home / "state.db")), time.time()
    store.load()
    fill(store, sessions=SESSIONS, tasks_each=1, open_=2, now=now)
    odd = SessionHistory(
        SESSIONS + 1,
        "odd",
        owner=HOSTILE,
        queue="default",
        application="command",
        resreq="cpu=1",
        created_at=now - 600,
        asked_at=now - 600,
        ended_at=now - 300,
        state=PastState.CANCELLED,
        cancelled=1,
    )
    store.write(PutHistory(odd)).result()
    store.close()
    with found.up():
        yield found


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as found:
        enter(found, server)
        yield found


def usage(server: Server, by: str, days: float) -> dict[str, dict[str, Any]]:
    body = server.ask("GET", f"usage?by={by}&since={int(time.time() - days * 86400)}")
    return {row[by]: row for row in body["rows"]}


def test_the_table_of_use_has_the_figures_of_the_server(server: Server, window: Browser) -> None:
    go(window, "#/history?days=30&by=application")
    window.until(f"{GROUPS}.length === 2")
    shown = {each.split(" ")[0]: each.split(" ")[1:] for each in window.run(f"return {GROUPS}")}
    assert set(shown) == {"function", "command"}
    known = usage(server, "application", 30)
    for name, cells in shown.items():
        hours, unit, *_ = cells
        assert unit == "card-hours"
        assert float(hours) == pytest.approx(known[name]["card_s"] / 3600, rel=0.05)
        assert int(cells[-1]) == pytest.approx(known[name]["sessions"], abs=1)
    lead = text(window, "main .wide .small")
    assert "card-hours used" in lead
    assert "idle of" in lead


def test_the_bars_add_up_to_the_table_and_stand_below_what_there_was(server: Server, window: Browser) -> None:
    go(window, "#/history?days=30&by=queue")
    window.until(f"{GROUPS}.length === 1 && {BARS}.length > 10")
    titles = window.run(f"return {BARS}.map(e => e.textContent)")
    parts = [float(title.split(": ")[1].split(" ")[0]) for title in titles]
    assert all(title.startswith("default: ") and " card-hours from " in title for title in titles)
    (group,) = window.run(f"return {GROUPS}")
    assert sum(parts) == pytest.approx(float(group.split(" ")[1]), rel=0.02)
    assert window.run("return document.querySelector('svg.stacks path.whole').getAttribute('d').length") > 10
    heights = window.run(f"return {BARS}.map(e => +e.getAttribute('y') + +e.getAttribute('height'))")
    assert max(heights) <= window.run("return document.querySelector('svg.stacks').getBoundingClientRect().height")
    assert "use by queue: default" in window.run(
        "return document.querySelector('svg.stacks').ariaLabel ?? "
        "document.querySelector('svg.stacks').getAttribute('aria-label')"
    )


@pytest.mark.parametrize(
    ("of", "unit", "factor"),
    [("", "card-hours", 0.5), ("core_s", "core-hours", 1.0), ("memory_byte_s", "GiB-hours", 1.0)],
)
def test_what_is_summed_can_be_chosen(server: Server, window: Browser, of: str, unit: str, factor: float) -> None:
    go(window, "#/history?days=30&by=queue")
    window.until(f"{GROUPS}.length === 1")
    write(window, "[name=of]", of)
    window.until(f"{GROUPS}[0]?.includes({unit!r})")
    hours = float(window.run(f"return {GROUPS}")[0].split(" ")[1])
    assert hours == pytest.approx(SESSIONS * factor * (3600 - 60) / 3600, rel=0.05)


def test_the_period_the_owner_and_the_queue_narrow_both_parts(server: Server, window: Browser) -> None:
    go(window, "#/history?days=30")
    window.until(f"{GROUPS}.length === {USERS + 1}")
    write(window, "[name=owner]", "user-07")
    window.until(f"{GROUPS}.length === 1 && {NAMES}.length === 3")
    assert window.run("return location.hash") == "#/history?days=30&owner=user-07"
    assert window.run(f"return {NAMES}") == [name_of(7), name_of(57), name_of(107)]
    write(window, "[name=queue]", "nowhere")
    window.until("[...document.querySelectorAll('.none')].filter(e => e.checkVisibility()).length === 2")
    assert window.run("return document.querySelectorAll('.chart, .lanes')[0].checkVisibility()") is False
    go(window, "#/history?days=0.0417&by=queue")
    window.until(f"{NAMES}.includes('odd')")


def test_lanes_show_who_waited_and_ran_and_the_pages_lead_through_all(server: Server, window: Browser) -> None:
    go(window, "#/history?days=30")
    window.until(f"{NAMES}.length === {PAGE}")
    seen: list[str] = window.run(f"return {NAMES}")
    lanes = "document.querySelectorAll('svg.lanes .bar')"
    window.until(f"{lanes}.length >= {PAGE}")
    kinds = window.run(f"return [...new Set([...{lanes}].map(e => e.getAttribute('class')))]")
    assert {"bar succeed", "bar failed", "bar waited"} <= set(kinds)
    words = window.run("return document.querySelector('svg.lanes').getAttribute('aria-label')")
    assert words == f"{PAGE} sessions, 0 of them open"
    while not window.run(
        "return [...document.querySelectorAll('button')].find(e => e.innerText === 'Later sessions').disabled"
    ):
        click_on(window, "Later sessions")
        window.until(f"{NAMES}.length && !{NAMES}.includes({seen[-1]!r})")
        seen += window.run(f"return {NAMES}")
    assert len(seen) == len(set(seen))
    assert set(seen) >= {name_of(number) for number in range(1, SESSIONS)} | {"odd"}
    window.until("document.querySelector('svg.lanes').getAttribute('aria-label').includes('2 of them open')")
    click_on(window, "Earlier sessions")
    window.until(f"{NAMES}.length === {PAGE}")
    assert set(window.run(f"return {NAMES}")) < set(seen)


def test_names_of_users_are_text_in_charts_and_tables(server: Server, window: Browser) -> None:
    go(window, "#/history?days=1&of=waited_s")
    window.until(f"{GROUPS}.some(each => each.startsWith('<img'))")
    window.until(f"{BARS}.some(each => each.textContent.startsWith('<img'))")
    assert window.run("return document.querySelectorAll('main img').length") == 0
    assert window.run("return document.title") == "History · Ullage"


def test_a_session_of_the_past_is_a_link(server: Server, window: Browser) -> None:
    go(window, "#/history?days=30&owner=user-07")
    window.until(f"{NAMES}.length === 3")
    window.run(f'document.querySelector("{LANES} tbody th a").click()')
    window.until(f"document.getElementById('title').textContent === {name_of(7)!r}")
    assert window.complaints() == []
