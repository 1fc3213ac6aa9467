"""The overview and the way in, in a real browser, on a real server with four declared cards."""

from collections.abc import Iterator

import pytest

from tests.web.browser import MISSING, Browser, browser
from tests.web.stage import Server, enter, go

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not on PATH: {', '.join(MISSING)}")

LONG = "a-session-with-a-name-that-goes-on-and-on"
HOSTILE = "<img src=x onerror=document.title='broken'>"


@pytest.fixture(scope="module")
def window(tmp_path_factory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
def server(tmp_path) -> Server:
    return Server(tmp_path)


VIEWS = {
    "#/": "document.querySelectorAll('#pending tbody tr').length",
    "#/queues": "document.querySelectorAll('tbody tr').length",
    "#/sessions": "document.querySelectorAll('tbody tr').length",
    f"#/sessions/{LONG}": "document.querySelector('.lead')?.textContent",
    "#/nodes": "document.querySelectorAll('.card-row').length === 4",
    "#/fit?gpu=9&preempt=1": "document.querySelector('.verdict')?.checkVisibility()",
}
"""Addresses of views, and what is true once each is drawn."""


def has_row(name: str) -> str:
    return f"[...document.querySelectorAll('tbody th')].some(cell => cell.textContent === '{name}')"


def test_the_link_leads_to_four_empty_cards_and_a_session_appears(server, window):
    with server.up():
        enter(window, server)
        assert window.run("return document.querySelectorAll('.card.free.declared').length") == 4
        assert window.run("return location.href") == f"{server.url}/"
        assert window.run("return document.querySelector('nav [aria-current=page]').textContent") == "Overview"
        assert window.run("return document.cookie") == ""
        assert window.run("return document.getElementById('pending-none').checkVisibility()")
        assert "idle: 4 cards" in window.run("return document.getElementById('room').innerText")
        server.create_session("train")
        window.until("[...document.querySelectorAll('#queues a')].some(link => link.textContent === 'train')")
        assert window.complaints() == []


def test_a_shared_card_is_as_full_as_its_parts_together(server, window):
    with server.up():
        enter(window, server)
        server.create_session("half", "gpu=0.5", min_instances=1)
        server.create_session("quarter", "gpu=0.25", min_instances=1)
        server.create_session("whole", "gpu=1", min_instances=1)
        window.until("document.querySelectorAll('.card.shared .fill').length === 2")
        window.until("document.querySelectorAll('.card.held').length === 1")
        card = window.run("return document.querySelector('.card.shared').innerText")
        assert "half 0.5, quarter 0.25" in card
        parts = "return [...document.querySelectorAll('.fill')].map(e => e.clientHeight / e.parentElement.clientHeight)"
        assert window.run(parts) == pytest.approx([0.5, 0.25], abs=0.02)
        assert "session half of team: 0.5" in window.run("return document.querySelector('.card.shared').title")
        assert window.complaints() == []


def test_zones_and_links_are_asked_for_when_they_are_opened(server, window):
    with server.up():
        enter(window, server)
        assert window.run("return document.querySelectorAll('.zone').length") == 0
        window.run("document.querySelector('.topology summary').click()")
        window.until("document.querySelectorAll('.topology .chip.idle').length === 4")
        text = window.run("return document.querySelector('.topology').innerText")
        assert "zone unknown" in text
        assert "read from sysfs" in text or "its topology is not known" in text
        server.create_session("train", "gpu=1", min_instances=1)
        window.until("document.querySelectorAll('.topology .chip.taken').length === 1")
        assert window.run("return document.querySelector('.topology .chip.taken').title").endswith("held by train")
        assert window.complaints() == []


def test_a_session_that_can_never_run_waits_with_its_reason(server, window):
    with server.up():
        enter(window, server)
        server.create_session("huge", "gpu=5")
        window.until(has_row("huge"))
        reason = window.run("return document.querySelector('#pending td.reason').innerText")
        assert "unplaceable" in reason
        assert "the request is larger than any node" in reason


def test_a_redraw_keeps_the_elements_of_unchanged_rows(server, window):
    with server.up():
        server.create_session("first")
        enter(window, server, "#/sessions")
        window.until(has_row("first"))
        window.run("window.kept = [...document.querySelectorAll('tbody tr, nav a, .filters input')]")
        server.create_session("second")
        window.until(has_row("second"))
        assert window.run("return window.kept.length") >= 8
        assert window.run("return window.kept.every(element => element.isConnected)")
        go(window, "#/")
        window.until("document.querySelectorAll('.card').length === 4")
        window.run("window.kept = [...document.querySelectorAll('.card, .queue')]")
        server.create_session("third", "gpu=1", min_instances=1)
        window.until("document.querySelectorAll('.card.held').length === 1")
        assert window.run("return window.kept.every(element => element.isConnected)")


def test_input_of_users_is_shown_as_text(server, window):
    with server.up():
        server.create_session("named", owner=HOSTILE)
        for address in ("#/", "#/sessions", "#/sessions/named", "#/nodes", "#/history"):
            enter(window, server, address)
            if address.startswith("#/sessions"):
                window.until(f"document.querySelector('main').textContent.includes({HOSTILE!r})")
            assert window.run("return document.querySelectorAll('main img').length") == 0
            assert window.run("return document.title").endswith("Ullage")


def test_a_lost_server_is_shown_and_found_again(server, window):
    with server.up():
        enter(window, server)
    window.until("document.getElementById('link').textContent === 'reconnecting…'")
    assert window.run("return document.querySelectorAll('.card').length") == 4
    with server.up():
        window.until("document.getElementById('link').textContent === 'live'")


def test_a_page_that_is_left_reads_nothing_more_and_goes_on_when_one_returns(server, window):
    """A browser keeps a page that was left, and few connections to a server."""
    with server.up():
        enter(window, server)
        window.run(
            "window.seen = [];"
            "new MutationObserver(() => seen.push(document.body.dataset.link))"
            ".observe(document.body, {attributes: true});"
            "dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}))"
        )
        window.until("seen.includes('lost') && document.body.dataset.link === 'live'")


def test_a_browser_with_an_old_token_gets_a_hint(server, window):
    with server.up():
        enter(window, server)
        window.run("localStorage.clear(); sessionStorage.clear()")
    with server.up():
        window.until("document.body.dataset.link === 'closed'")
        assert "Open the link that `ullage page` prints" in window.run("return document.body.innerText")


def test_a_bad_token_leads_to_a_field_for_the_right_one(server, window):
    with server.up():
        window.open("about:blank")
        window.open(f"{server.url}/enter#wrong")
        window.until("!document.getElementById('form').hidden")
        assert "not the token" in window.run("return document.getElementById('state').textContent")
        assert window.run("return location.href") == f"{server.url}/enter"
        window.run(f"document.getElementById('token').value = '{server.token}'; form.requestSubmit()")
        window.until("document.body.dataset.link === 'live'")


@pytest.mark.parametrize("width", [360, 800, 1280, 1440, 1600, 1920])
def test_nothing_is_wider_than_the_screen(server, window, width):
    with server.up():
        server.create_session(LONG, "cpu=1,mem=1g,gpu=5", owner="o" * 60)
        window.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False
        )
        enter(window, server)
        window.until("document.querySelectorAll('#pending tbody tr').length")
        for address, ready in VIEWS.items():
            go(window, address)
            window.until(ready)
            assert window.run("return document.documentElement.scrollWidth") <= width, address
            outside = "section => section.scrollWidth > section.clientWidth"
            assert window.run(f"return [...document.querySelectorAll('section')].filter({outside}).length") == 0, (
                address
            )
