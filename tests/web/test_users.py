"""The page as a person with the role `user` has it: own work can be changed, that of others and queues cannot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.web import axe
from tests.web.browser import MISSING, Browser, browser
from tests.web.stage import Server, enter, go
from tests.web.test_views import ROWS, VIEWS, click, click_on, text, write

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not on PATH: {', '.join(MISSING)}"),
    pytest.mark.timeout(900),
]

BUTTONS = "[...document.querySelectorAll('main button, main a.button')].filter(e => e.checkVisibility())"
STEPS = "for step in $(seq 1 2000); do echo step $step; sleep 1; done"


def fill(server: Server) -> None:
    for owner, session in (("anna", "anna-trains"), ("bert", "bert-trains")):
        server.run_programs(session, STEPS, 1, "cpu=0.1,gpu=1", owner=owner)
        server.create_session(f"{owner}-waits", "gpu=8", owner=owner, min_instances=1)
        server.create_session(f"{owner}-more", owner=owner)


def a_server(folder: object, reads: str) -> Server:
    return Server(folder, settings=f'[users]\ndefault = "user"\nreads = "{reads}"\n')


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = a_server(tmp_path_factory.mktemp("server"), "all")
    with found.up():
        fill(found)
        yield found


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as found:
        enter(found, server, token=server.token_of("anna"))
        found.until("document.querySelector('.who').innerText === 'anna · user'")
        yield found


def buttons(window: Browser) -> list[str]:
    return [str(each) for each in window.run(f"return {BUTTONS}.map(e => e.textContent)")]


def test_ones_own_session_can_be_changed_and_cancelled(server: Server, window: Browser) -> None:
    go(window, "#/sessions/anna-more")
    window.until(f"{BUTTONS}.some(e => e.textContent === 'Cancel')")
    assert {"Change priority", "Close", "Cancel"} <= set(buttons(window))
    click_on(window, "Change priority")
    write(window, "dialog input", 3)
    click_on(window, "Change")
    window.until("!document.querySelector('dialog')")
    assert server.ask("GET", "sessions/anna-more")["priority"] == 3
    click_on(window, "Cancel")
    click_on(window, "Cancel it")
    window.until("document.querySelector('.session-head').innerText.includes('closed')")
    assert server.ask("GET", "sessions/anna-more")["state"] == "closed"
    assert window.complaints() == []


def test_ones_own_output_is_shown(window: Browser) -> None:
    go(window, "#/sessions/anna-trains")
    click(window, "[aria-label='output of task 1']")
    window.until("document.querySelector('.log')?.textContent.includes('step 1')")
    assert "Cancel" in text(window, "[aria-label=Tasks]")
    assert window.complaints() == []


def test_nothing_of_another_user_can_be_changed_or_its_output_read(server: Server, window: Browser) -> None:
    go(window, "#/sessions/bert-trains")
    window.until("document.querySelectorAll('[aria-label=Tasks] tbody tr').length === 1")
    window.until("document.querySelectorAll('.facts-list dd').length > 5")
    assert not {"Change priority", "Close", "Cancel", "Retry"} & set(buttons(window))
    assert window.run("return document.querySelectorAll('[aria-label=Tasks] a').length") == 0
    assert window.complaints() == [], "nothing is asked for that the server refuses"
    go(window, "#/sessions/bert-trains?task=1")
    window.until("document.querySelector('.log-section').innerText.includes('belongs to bert')")
    window.complaints()
    assert server.ask("GET", "sessions/bert-trains")["running"] == 1


def test_a_user_edits_no_queues_and_cordons_no_nodes(server: Server, window: Browser) -> None:
    go(window, "#/queues")
    window.until("document.querySelectorAll('tbody tr').length >= 1")
    assert not {"New queue", "Edit", "Remove"} & set(buttons(window))
    go(window, "#/nodes")
    window.until("document.querySelectorAll('.card-row').length === 4")
    assert not {"Cordon", "Uncordon"} & set(buttons(window))
    assert window.complaints() == []
    olga = server.token_of("olga", "operator")
    enter(window, server, "#/queues", olga)
    window.until("document.querySelector('table').innerText.includes('Edit')")
    enter(window, server, "#/queues", server.token_of("anna"))
    window.until("document.querySelector('.who').innerText === 'anna · user'")
    window.until(f"document.querySelectorAll('tbody tr').length >= 1 && !{BUTTONS}.some(e => e.textContent === 'Edit')")


def test_a_viewer_changes_nothing_and_reads_no_output(server: Server, window: Browser) -> None:
    enter(window, server, "#/sessions/anna-trains", server.token_of("vera", "viewer"))
    window.until("document.querySelector('.who').innerText === 'vera · viewer'")
    window.until("document.querySelectorAll('[aria-label=Tasks] tbody tr').length === 1")
    window.until("document.querySelectorAll('.facts-list dd').length > 5")
    window.until("document.querySelectorAll('[aria-label=Tasks] a').length === 0")
    assert not {"Change priority", "Close", "Cancel", "Retry"} & set(buttons(window))
    enter(window, server, token=server.token_of("anna"))


def test_a_revoked_token_is_told_and_the_page_reads_nothing_more(server: Server, window: Browser) -> None:
    body = server.ask("POST", "tokens", {"user": "anna", "role": "user"})
    enter(window, server, token=body["token"])
    window.until("document.querySelector('.who').innerText === 'anna · user'")
    server.ask("DELETE", f"tokens/{body['id']}")
    window.until("document.body.dataset.link === 'closed'")
    assert "Open the link that `ullage page` prints" in window.run("return document.body.innerText")
    window.complaints()
    enter(window, server, token=server.token_of("anna"))


@pytest.mark.skipif(axe.MISSING, reason="not installed: axe-core-python")
def test_axe_finds_nothing_wrong_for_a_user(server: Server, window: Browser) -> None:
    found = {}
    for address, ready in VIEWS.items():
        if "/sessions/" in address or address == "#/":
            continue
        go(window, address)
        window.until(ready.replace(">= 7", ">= 3").replace(">= 5", ">= 1"))
        found[address] = axe.violations(window)
    for address in ("#/sessions/anna-trains", "#/sessions/bert-waits"):
        go(window, address)
        window.until("document.querySelectorAll('.facts-list dd').length > 5")
        found[address] = axe.violations(window)
    assert {address: each for address, each in found.items() if each} == {}


def test_with_own_work_alone_no_view_names_that_of_others(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Who holds cards is shown on them; every list, history and hint has own work only."""
    server = a_server(tmp_path_factory.mktemp("own"), "own")
    with server.up(), browser(tmp_path_factory.mktemp("browser")) as window:
        fill(server)
        enter(window, server, "#/sessions", server.token_of("anna"))
        window.until(f"{ROWS} === 'anna-more,anna-waits,anna-trains'")
        write(window, "[name=search]", "bert")
        window.until("document.querySelector('.empty, .none')?.checkVisibility()")
        go(window, "#/")
        window.until("document.querySelectorAll('#pending tbody tr').length")
        assert "bert" not in text(window, "#pending")
        go(window, "#/history")
        window.until("document.querySelectorAll('[aria-label=\"Sessions of the period\"] tbody tr').length === 3")
        window.until("document.querySelectorAll('[aria-label=\"Use by group\"] tbody tr').length === 1")
        assert "bert" not in text(window, "main")
        assert window.complaints() == []
        go(window, "#/sessions/bert-trains")
        window.until("document.querySelector('main .notice')?.innerText.includes('another user')")
        assert "bert-waits" not in text(window, "main")
