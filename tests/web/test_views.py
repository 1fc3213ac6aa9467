"""The views of the page, by clicking, on one real server whose cards and queues are in use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.web import axe
from tests.web.browser import MISSING, Browser, browser
from tests.web.stage import Server, enter, fill, go

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not on PATH: {', '.join(MISSING)}"),
    pytest.mark.timeout(900),
]

VIEWS = {
    "#/": "document.querySelectorAll('#queues .queue').length >= 5",
    "#/queues": "document.querySelectorAll('tbody tr').length >= 5",
    "#/sessions": "document.querySelectorAll('tbody tr').length >= 7",
    "#/sessions/train-vit?task=1": "document.querySelector('.log')?.textContent.includes('step 1')",
    "#/sessions/finetune-13b": "document.querySelector('.lead')?.textContent",
    "#/nodes": "document.querySelectorAll('.card-row .strip path').length >= 4",
    "#/history": "document.querySelectorAll('.filters select').length === 3",
    "#/fit?gpu=1": "document.querySelector('.verdict')?.checkVisibility()",
    "#/nowhere": "document.querySelector('main .none')",
}
"""Addresses, and what is true once the view is drawn."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = Server(tmp_path_factory.mktemp("server"))
    with found.up():
        fill(found)
        yield found


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as found:
        enter(found, server)
        yield found


def text(window: Browser, selector: str) -> str:
    return str(window.run(f"return document.querySelector({selector!r})?.innerText ?? ''"))


def click(window: Browser, selector: str) -> None:
    window.until(f"document.querySelector({selector!r})?.checkVisibility()")
    window.run(f"document.querySelector({selector!r}).click()")


def click_on(window: Browser, words: str) -> None:
    """Press the visible button with these words."""
    found = f"[...document.querySelectorAll('button')].filter(e => e.checkVisibility() && e.textContent === {words!r})"
    window.until(f"{found}.length")
    window.run(f"{found}.at(-1).click()")


def write(window: Browser, selector: str, value: object) -> None:
    field = f"document.querySelector({selector!r})"
    window.until(f"{field}?.checkVisibility()")
    window.run(f"{field}.value = {value!r}; {field}.dispatchEvent(new Event('input', {{bubbles: true}}))")


def rows(window: Browser) -> list[str]:
    found = window.run("return [...document.querySelectorAll('tbody th')].map(cell => cell.textContent)")
    return [str(each) for each in found]


ROWS = "[...document.querySelectorAll('tbody th')].map(cell => cell.textContent).join()"


# --- sessions ---


def test_the_navigation_leads_to_every_view_and_back(server: Server, window: Browser) -> None:
    for name, title in [("queues", "Queues"), ("sessions", "Sessions"), ("nodes", "Nodes and cards")]:
        click(window, f"nav a[data-view={name}]")
        window.until(f"document.getElementById('title').textContent === {title!r}")
        assert window.run("return document.activeElement.id") == "title"
    window.run("history.back()")
    window.until("document.getElementById('title').textContent === 'Sessions'")


def test_sessions_are_searched_filtered_and_sorted_and_the_address_says_how(server: Server, window: Browser) -> None:
    go(window, "#/sessions")
    window.until("document.querySelectorAll('tbody tr').length >= 7")
    write(window, "[name=search]", "BERT")
    window.until(f"{ROWS} === 'finetune-13b,eval-mmlu,embed'")
    write(window, "[name=queue]", "language")
    window.until(f"{ROWS} === 'finetune-13b,eval-mmlu'")
    click(window, "th[data-sort=id] button")
    window.until(f"{ROWS} === 'eval-mmlu,finetune-13b'")
    assert window.run("return location.hash") == "#/sessions?search=BERT&queue=language&sort=id"
    assert window.run("return document.querySelector('[aria-sort]').getAttribute('aria-sort')") == "ascending"
    click(window, "th[data-sort=id] button")
    window.until(f"{ROWS} === 'finetune-13b,eval-mmlu'")
    write(window, "[name=search]", "no such thing")
    click_on(window, "Show all sessions")
    window.until("document.querySelectorAll('tbody tr').length >= 7")


def test_two_filters_that_change_at_once_both_count(server: Server, window: Browser) -> None:
    go(window, "#/sessions")
    window.until("document.querySelectorAll('tbody tr').length >= 7")
    write(window, "[name=search]", "e")
    write(window, "[name=owner]", "bert")
    write(window, "[name=queue]", "serving")
    window.until("location.hash === '#/sessions?search=e&owner=bert&queue=serving'")
    window.until(f"{ROWS} === 'embed'")


def test_a_deep_link_opens_what_it_names(server: Server, window: Browser) -> None:
    enter(window, server, "#/sessions?owner=cleo&state=open")
    window.until(f"{ROWS} === 'chat-7b'")
    assert window.run("return document.querySelector('[name=owner]').value") == "cleo"


def test_a_long_list_is_paged_by_the_server(server: Server, window: Browser) -> None:
    for number in range(60):
        server.create_session(f"page-{number:02}", owner="pager")
    go(window, "#/sessions?owner=pager&sort=id")
    window.until("document.querySelectorAll('tbody tr').length === 50")
    assert rows(window)[0] == "page-00"
    assert "50 of 60" in text(window, ".pager")
    click_on(window, "Next")
    window.until("document.querySelectorAll('tbody tr').length === 10")
    assert "offset=50" in window.run("return location.hash")
    click_on(window, "Previous")
    window.until("document.querySelectorAll('tbody tr').length === 50")
    for number in range(60):
        server.ask("POST", f"sessions/page-{number:02}/cancel")


# --- a session ---


def test_a_waiting_session_says_why_with_numbers_and_what_would_help(server: Server, window: Browser) -> None:
    go(window, "#/sessions/huge")
    window.until("document.querySelector('.lead')?.textContent.includes('8')")
    assert "unplaceable" in text(window, ".numbers")
    window.until("document.querySelector('.helps')?.innerText.includes('Would help')")
    window.until("document.querySelector('.none')?.checkVisibility()")
    assert "no executor yet" in text(window, "main")


def test_a_running_session_shows_its_executors_tasks_and_live_output(server: Server, window: Browser) -> None:
    go(window, "#/sessions/train-vit")
    window.until("document.querySelectorAll('.lanes .bar.works').length === 2")
    assert "2 stays of executors, 2 of them now" in window.run(
        "return document.querySelector('svg.lanes').getAttribute('aria-label')"
    )
    window.until("document.querySelectorAll('[aria-label=Tasks] tbody tr').length === 2")
    click(window, "[aria-label='output of task 1']")
    window.until("document.querySelector('.log').textContent.includes('step 1 loss')")
    before = len(text(window, ".log"))
    window.until(f"document.querySelector('.log').textContent.length > {before + 10}")
    click_on(window, "Close output")
    window.until("!document.querySelector('.log-section').checkVisibility()")
    window.until("document.querySelectorAll('[aria-label=Events] tbody tr').length >= 3")


def test_the_output_of_a_failed_task_is_kept_with_its_code(server: Server, window: Browser) -> None:
    go(window, "#/sessions/broken?task=2")
    window.until("document.querySelector('.log .stderr')?.textContent.includes('no such data')")
    window.until("document.querySelector('.log-section').innerText.includes('failed with code 3')")


def test_priority_close_and_cancel_are_buttons_that_ask_first(server: Server, window: Browser) -> None:
    server.create_session("mine", owner="anna")
    server.create_session("mine-too", owner="anna")
    go(window, "#/sessions/mine")
    click_on(window, "Change priority")
    write(window, "dialog input", 7)
    click_on(window, "Change")
    window.until("!document.querySelector('dialog')")
    window.until("document.querySelector('.facts-list').innerText.match(/priority\\s+7/)")
    click_on(window, "Close")
    window.until("document.querySelector('dialog').innerText.includes('Close mine?')")
    click_on(window, "Close it")
    window.until("document.querySelector('.state-of, .session-head').innerText.includes('closed')")
    assert server.ask("GET", "sessions/mine")["state"] == "closed"
    go(window, "#/sessions/mine-too")
    click_on(window, "Cancel")
    click_on(window, "Leave it")
    assert server.ask("GET", "sessions/mine-too")["state"] == "open"
    click_on(window, "Cancel")
    click_on(window, "Cancel it")
    window.until("document.querySelector('.session-head').innerText.includes('closed')")


def test_a_refusal_of_the_server_is_shown_in_the_dialog(server: Server, window: Browser) -> None:
    go(window, "#/sessions/train-vit")
    click_on(window, "Close")
    click_on(window, "Close it")
    window.until("document.querySelector('dialog .fault')?.textContent.length > 10")
    click_on(window, "Leave it")
    assert server.ask("GET", "sessions/train-vit")["state"] == "open"
    window.complaints()


def test_a_session_that_is_not_there_is_named(server: Server, window: Browser) -> None:
    go(window, "#/sessions/nobody")
    window.until("document.querySelector('main .notice')?.innerText.includes('nobody')")
    window.complaints()


# --- queues, nodes, plan ---


def test_a_queue_is_added_changed_and_removed(server: Server, window: Browser) -> None:
    go(window, "#/queues")
    window.until(f"{ROWS} === 'default,research,language,vision,serving'")
    click_on(window, "New queue")
    write(window, "dialog [name=name]", "robots")
    write(window, "dialog [name=parent]", "research")
    write(window, "dialog [name=limit]", "gpu=nonsense")
    click_on(window, "Add")
    window.until("document.querySelector('dialog .fault')?.textContent.includes('nonsense')")
    write(window, "dialog [name=limit]", "gpu=1")
    click_on(window, "Add")
    window.until(f"{ROWS} === 'default,research,language,robots,vision,serving'")
    click(window, "[aria-label='Edit queue robots']")
    write(window, "dialog [name=weight]", 9)
    click_on(window, "Save")
    window.until("!document.querySelector('dialog')")
    (robots,) = [each for each in server.ask("GET", "queues") if each["name"] == "robots"]
    assert (robots["parent"], robots["weight"], robots["limit"]) == ("research", 9, "gpu=1")
    click(window, "[aria-label='Remove queue robots']")
    click_on(window, "Remove it")
    window.until(f"{ROWS} === 'default,research,language,vision,serving'")
    window.complaints()


def test_cards_show_their_holders_and_their_hour_and_never_a_load_that_is_not_measured(
    server: Server, window: Browser
) -> None:
    go(window, "#/nodes")
    window.until("document.querySelectorAll('.card-row .strip path.held').length === 4")
    shown = text(window, ".card-rows")
    assert "train-vit" in shown
    assert shown.count("its load is not measured: no driver reports it") == 4
    assert window.run("return document.querySelectorAll('path.compute').length") == 0
    write(window, "[name=search]", "chat-7b")
    window.until("location.hash === '#/nodes?search=chat-7b'")
    write(window, "[name=search]", "nothing of this name")
    window.until("document.querySelector('.none').checkVisibility()")


def test_a_node_is_cordoned_and_uncordoned(server: Server, window: Browser) -> None:
    go(window, "#/nodes")
    click_on(window, "Cordon")
    window.until("document.querySelector('.state.is-cordoned')")
    assert server.ask("GET", "nodes")[0]["cordoned"] is True
    click_on(window, "Uncordon")
    window.until("document.querySelector('.state.is-ready')")


def test_the_planner_says_whether_a_request_fits_and_what_it_lacks(server: Server, window: Browser) -> None:
    go(window, "#/fit")
    click_on(window, "Ask the planner")
    window.until("document.querySelector('.verdict').innerText.includes('cannot be planned')")
    write(window, "[name=gpu]", "0.25")
    click_on(window, "Ask the planner")
    window.until("document.querySelector('.verdict').innerText === 'It fits now'")
    assert window.run("return location.hash") == "#/fit?gpu=0.25"
    write(window, "[name=gpu]", "9")
    window.run("document.querySelector('[name=preempt]').click()")
    click_on(window, "Ask the planner")
    window.until("document.querySelector('.verdict').innerText === 'It does not fit now'")
    assert "9" in text(window, ".lead")
    assert "ullage plan -r gpu=9 --preempt" in text(window, ".fit-form")
    window.run("document.querySelector('details summary').click()")
    window.until("document.querySelectorAll('[aria-label=\"Steps of the decision\"] tbody tr').length >= 2")


# --- who one is ---


def test_without_the_token_nothing_that_changes_is_offered_until_one_signs_in(server: Server, window: Browser) -> None:
    go(window, "#/queues")
    click_on(window, "Sign out")
    window.until("document.querySelector('.who').innerText.includes('read only')")
    assert "Edit" not in text(window, "table")
    go(window, "#/fit?gpu=0.25")
    window.until("document.querySelector('.verdict')?.innerText === 'It fits now'")
    click_on(window, "Sign in")
    write(window, "dialog input", "not-the-token")
    window.run("document.querySelector('dialog form').requestSubmit()")
    window.until("document.querySelector('dialog .fault').innerText.includes('not a token')")
    write(window, "dialog input", server.token)
    window.run("document.querySelector('dialog form').requestSubmit()")
    window.until("!document.querySelector('dialog')")
    go(window, "#/queues")
    window.until("document.querySelector('table').innerText.includes('Edit')")
    assert server.token not in window.run("return JSON.stringify(localStorage)")
    window.complaints()


# --- keyboard, hearing, sight ---


def press(window: Browser, key: str) -> None:
    for kind in ("keyDown", "keyUp"):
        window.devtools("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key])


KEYS = {"Tab": 9, "Escape": 27}


def test_the_keyboard_reaches_everything_and_escape_closes_a_dialog(server: Server, window: Browser) -> None:
    window.open("about:blank")
    window.open(f"{server.url}/#/queues")
    window.until("document.querySelectorAll('tbody tr').length >= 5")
    reached = []
    for _ in range(24):
        press(window, "Tab")
        reached.append(window.run("return document.activeElement.id || document.activeElement.textContent"))
        if window.run("return document.activeElement === document.body"):  # the end of the page
            break
        assert window.run("return getComputedStyle(document.activeElement).outlineStyle") != "none", reached[-1]
    assert reached[0] == "skip"
    assert {"Overview", "Sessions", "sign", "New queue", "Edit"} <= set(reached)
    click_on(window, "New queue")
    assert window.run("return document.activeElement.name") == "name"
    press(window, "Escape")
    window.until("!document.querySelector('dialog')")
    window.run("document.getElementById('skip').click()")
    assert window.run("return document.activeElement.id") == "title"


@pytest.mark.skipif(axe.MISSING, reason="not installed: axe-core-python")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_nothing_wrong_in_any_view(server: Server, window: Browser, scheme: str, width: int) -> None:
    window.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    window.devtools("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
    found = {}
    enter(window, server)
    for address, ready in VIEWS.items():
        go(window, address)
        window.until(ready)
        found[address] = axe.violations(window)
        assert window.run("return document.documentElement.scrollWidth") <= width, address
    go(window, "#/queues")
    click_on(window, "New queue")
    found["dialog"] = axe.violations(window)
    press(window, "Escape")
    window.devtools("Emulation.setEmulatedMedia", features=[])
    window.devtools("Emulation.clearDeviceMetricsOverride")
    assert {address: each for address, each in found.items() if each} == {}
    assert window.complaints() == []
