"""Ten thousand sessions: what the browser loads and draws is bounded, whatever is searched, filtered, sorted, paged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from benchmarks.past import USERS, fill, name_of

from tests.web.browser import MISSING, Browser, browser
from tests.web.stage import Server, enter, go
from tests.web.test_views import ROWS, click, click_on, rows, text, write
from ullage.storage.open import open_store

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not on PATH: {', '.join(MISSING)}"),
    pytest.mark.timeout(900),
    pytest.mark.long,
]

SESSIONS, OPEN = 10_000, 400
PAGE = 50
MOST_BYTES = 64 * 1024
"""Of one answer to the page, uncompressed: a page of fifty sessions has half of that."""
MOST_OVERVIEW_BYTES = 256 * 1024
"""Of one overview, with at most 300 sessions."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = Server(tmp_path_factory.mktemp("server"))
    store = open_store(str(found.home / "state.db"))
    store.load()
    fill(store, sessions=SESSIONS, tasks_each=2, open_=OPEN, now=time.time())
    store.close()
    with found.up():
        yield found


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as found:
        enter(found, server)
        found.run("performance.setResourceTimingBufferSize(10000)")
        yield found


def loaded(window: Browser, path: str, act: Callable[[], object]) -> list[tuple[str, int]]:
    """Return the addresses below `path` that were loaded while something is done, each with its bytes."""
    window.run("performance.clearResourceTimings()")
    act()
    entries = window.run(
        "return performance.getEntriesByType('resource').map(each => [each.name, each.decodedBodySize])"
    )
    return [(name.partition("/v1/")[2], size) for name, size in entries if f"/v1/{path}" in name]


def assert_bounded(window: Browser, found: list[tuple[str, int]]) -> None:
    assert found, "something was asked for"
    assert all(f"limit={PAGE}" in address for address, _ in found), found
    assert all(size <= MOST_BYTES for _, size in found), found
    assert window.run("return document.querySelectorAll('tbody tr').length") <= PAGE
    assert window.run("return document.querySelectorAll('*').length") < 3000


STEPS: dict[str, tuple[Callable[[Browser], object], str]] = {
    "the list": (lambda window: go(window, "#/sessions"), f"{ROWS}.startsWith('{name_of(SESSIONS - 1)},')"),
    "a search": (
        lambda window: write(window, "[name=search]", "past-0123"),
        "document.querySelectorAll('tbody tr').length === 10",
    ),
    "an owner": (
        lambda window: (write(window, "[name=search]", ""), write(window, "[name=owner]", "user-07")),
        f"document.querySelector('.count-line').innerText === '{SESSIONS // USERS} sessions'",
    ),
    "a state": (
        lambda window: write(window, "[name=state]", "open"),
        f"document.querySelector('.count-line').innerText === '{OPEN // USERS} sessions'",
    ),
    "everything again": (
        lambda window: go(window, "#/sessions"),
        f"document.querySelector('.count-line').innerText === '{SESSIONS:,} sessions'",
    ),
    "an order": (lambda window: click(window, "th[data-sort=id] button"), f"{ROWS}.startsWith('{name_of(0)},')"),
    "the next page": (lambda window: click_on(window, "Next"), f"{ROWS}.startsWith('{name_of(PAGE)},')"),
    "the last page": (
        lambda window: go(window, f"#/sessions?sort=id&offset={SESSIONS - PAGE}"),
        f"{ROWS}.endsWith(',{name_of(SESSIONS - 1)}')",
    ),
    "the most failed": (
        lambda window: go(window, "#/sessions?sort=-failed&state=closed"),
        f"document.querySelector('.count-line').innerText === '{SESSIONS - OPEN:,} sessions'",
    ),
}
"""What is done, and what is true afterwards."""


def test_every_step_loads_and_draws_one_page(server: Server, window: Browser) -> None:
    for act, done in STEPS.values():

        def step(act: Callable[[Browser], object] = act, done: str = done) -> None:
            act(window)
            window.until(done)

        assert_bounded(window, loaded(window, "sessions", step))
    assert "9,600" in text(window, ".count-line")
    assert window.complaints() == []


def test_the_live_overview_has_the_foremost_sessions_only(server: Server, window: Browser) -> None:
    found = window.run(
        "return (async () => { const { credentials } = await import('/static/key.js');"
        " const response = await fetch('/v1/live?sessions=300', { headers: { Authorization: credentials() } });"
        " const reader = response.body.getReader(); const decoder = new TextDecoder(); let text = '';"
        " while (!text.includes('\\r\\n\\r\\n'))"
        "   text += decoder.decode((await reader.read()).value, { stream: true });"
        " reader.cancel(); const data = text.split('data: ')[1].split('\\r\\n')[0];"
        " const overview = JSON.parse(data);"
        " return [data.length, overview.sessions.length, overview.sessions_open]; })()"
    )
    size, sessions, open_ = found
    assert (sessions, open_) == (300, OPEN)
    assert size <= MOST_OVERVIEW_BYTES
    entries = loaded(window, "live", lambda: enter(window, server))
    assert all("sessions=300" in address for address, _ in entries)


def test_the_overview_draws_few_of_many(server: Server, window: Browser) -> None:
    go(window, "#/")
    window.until("document.querySelectorAll('#queues .queue').length >= 1")
    assert window.run("return document.querySelectorAll('tbody tr').length") <= PAGE
    assert window.run("return document.querySelectorAll('*').length") < 3000


def test_the_history_loads_one_page_of_sessions_and_sums_of_use(server: Server, window: Browser) -> None:
    def open_history() -> None:
        go(window, "#/history?days=30")
        window.until("document.querySelectorAll('[aria-label=\"Sessions of the period\"] tbody tr').length === 40")
        window.until(f"document.querySelectorAll('[aria-label=\"Use by group\"] tbody tr').length === {USERS}")

    window.run("performance.clearResourceTimings()")
    open_history()
    entries = window.run(
        "return performance.getEntriesByType('resource').map(each => [each.name, each.decodedBodySize])"
    )
    pages = [(name, size) for name, size in entries if "/v1/history" in name]
    sums = [(name, size) for name, size in entries if "/v1/usage" in name]
    assert pages
    assert sums
    assert all("limit=41" in name and size <= MOST_BYTES for name, size in pages), pages
    assert all(size <= 512 * 1024 for _, size in sums), sums
    first = rows(window)
    click_on(window, "Later sessions")
    window.until(f"{ROWS} !== {','.join(first)!r}")
    assert (
        window.run("return document.querySelectorAll('[aria-label=\"Sessions of the period\"] tbody tr').length") == 40
    )
    assert window.run("return document.querySelectorAll('svg.lanes > g:last-of-type > g').length") <= 40
    assert window.complaints() == []
