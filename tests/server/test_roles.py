"""Each route and each verb by each role, from the routes themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.requests import HTTPConnection
from starlette.routing import Route

from tests.lab import Lab
from tests.server.people import CALLERS, HERE, OPEN, ROUTES, VERBS, People, may, people_of_one_server
from tests.service.answers import SERVER, TOKEN
from ullage.cli import verbs
from ullage.cli.main import main
from ullage.model.identity import Identity, Role
from ullage.server.access import needs
from ullage.server.app import make_app
from ullage.server.callers import Callers, NotAdmitted
from ullage.server.guard import require_declared
from ullage.server.routes import route
from ullage.service.access_rules import AccessRules
from ullage.service.access_tokens import LINK_S, MAX_LINKS, page_key
from ullage.service.system_users import SystemUsers
from ullage.web.pages import pages

NAMES = {"session": "work", "uid": "pod", "key": "pair", "task": "1"}
"""What ann owns; every other name does not exist, so that nothing is changed."""


def declared() -> list[str]:
    """Return each route of the application as `METHOD /path`."""
    with Lab() as lab:
        app = make_app(lab.service, SERVER, {}, TOKEN, {"localhost"}, Path("/nowhere"), lambda: None, pages(page_key))
        found = [each for each in app.routes if isinstance(each, Route)]
    return [f"{method} {each.path}" for each in found for method in sorted((each.methods or set()) - {"HEAD"})]


CLOSED = [each for each in declared() if each.partition(" ")[2] not in OPEN]


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    with people_of_one_server(tmp_path_factory.mktemp("people") / "home") as found:
        yield found


def ask(people: People, caller: str, line: str) -> tuple[int, str]:
    """Return the status of the answer and the code of its error."""
    method, path = line.split(" ")
    address = re.sub(r"{(\w+)}", lambda match: NAMES.get(match.group(1), "none"), path)
    with people.client(caller) as client, client.stream(method, address, json=None) as answer:
        if answer.is_success:
            return answer.status_code, ""
        answer.read()
        return answer.status_code, answer.json()["code"]


def test_every_route_has_an_entry_in_the_matrix() -> None:
    assert set(CLOSED) == set(ROUTES)


@pytest.mark.parametrize("line", CLOSED)
def test_who_may_not_use_a_route_is_refused_by_it(people: People, line: str) -> None:
    for caller in CALLERS:
        if may(caller, ROUTES[line]):
            continue
        status, code = ask(people, caller, line)
        if caller == "nobody":
            assert (status, code) == (401, "unauthorized")
        else:
            assert status == 403, caller
            assert code in ("role-needed", "not-the-owner"), caller


@pytest.mark.parametrize("line", [each for each in CLOSED if each.startswith("GET ")])
def test_who_may_read_a_route_is_answered(people: People, line: str) -> None:
    for caller in CALLERS:
        if may(caller, ROUTES[line]):
            status, _ = ask(people, caller, line)
            assert status in (200, 400, 404), caller  # some need a query, or name what is not there


@pytest.mark.parametrize("line", [each for each in CLOSED if not each.startswith("GET ") and "shutdown" not in each])
def test_who_may_change_something_by_a_route_is_not_refused_for_who_it_is(people: People, line: str) -> None:
    line = line.replace("{session}", "none").replace("{uid}", "none").replace("{key}", "none")
    for caller in CALLERS:
        original = next(each for each in CLOSED if re.sub("{(session|uid|key)}", "none", each) == line)
        if may(caller, ROUTES[original]):
            status, code = ask(people, caller, line)
            assert status not in (401, 403, 500), (caller, code)


def test_a_refusal_says_who_one_is_and_which_role_is_needed(people: People) -> None:
    with people.client("vera") as vera:
        body = vera.post("/v1/sessions", json={"application": "command"}).json()
        assert body["code"] == "role-needed"
        assert body["message"] == "POST /v1/sessions needs the role user; you are vera with the role viewer"
    with people.client("bob") as bob:
        body = bob.post("/v1/sessions/work/cancel").json()
        assert body["code"] == "not-the-owner"
        assert "session work belongs to ann; you are bob with the role user" in body["message"]


def test_the_owner_of_a_session_is_the_caller_and_never_what_a_user_says(people: People) -> None:
    with people.client("bob") as bob:
        own = bob.post("/v1/sessions", json={"application": "command", "user": "ann"})
        assert own.json()["owner"] == "bob"
        refused = bob.post("/v1/sessions", json={"application": "command", "owner": "ann"})
        assert (refused.status_code, refused.json()["code"]) == (403, "not-yourself")
        card = bob.post("/v1/allocations", json={"uid": "x", "resreq": "gpu=1", "owner": "ann"})
        assert (card.status_code, card.json()["code"]) == (403, "not-yourself")
    with people.client("olga") as olga:
        assert olga.post("/v1/sessions", json={"application": "command", "owner": "ann"}).json()["owner"] == "ann"
        assert olga.post("/v1/sessions", json={"application": "command"}).json()["owner"] == "olga"
    with people.client("root") as root:  # a token that several people may share: the client says for whom it asks
        assert root.post("/v1/sessions", json={"application": "command", "user": "zoe"}).json()["owner"] == "zoe"


def test_a_closed_queue_and_those_below_it_take_only_their_users(people: People) -> None:
    for caller, status in (("bob", 403), ("ann", 201), ("olga", 201)):
        with people.client(caller) as client:
            answer = client.post("/v1/sessions", json={"application": "command", "queue": "below"})
            assert answer.status_code == status, caller
            if status == 403:
                assert answer.json()["code"] == "queue-closed"


def test_me_names_the_user_the_role_and_the_routes_that_it_may_use(people: People) -> None:
    with people.client("bob") as bob:
        me = bob.get("/v1/me").json()
    assert (me["user"], me["role"], me["proof"], me["reads"], me["reading"]) == ("bob", "user", "token", "all", False)
    assert {"get_me", "create_session", "cancel_session"} <= set(me["may"])
    assert not {"put_queue", "cordon_node", "create_token", "shut_down"} & set(me["may"])


def test_the_key_of_the_page_of_a_user_reads_as_that_user_and_changes_nothing(people: People) -> None:
    with people.client("bob") as bob:
        key = bob.post("/v1/admit").json()["key"]
        bob.headers["Authorization"] = f"Page {key}"
        me = bob.get("/v1/me").json()
        assert (me["user"], me["role"], me["reading"]) == ("bob", "user", True)
        assert "create_session" not in me["may"]
        assert bob.post("/v1/sessions", json={"application": "command"}).status_code == 401
        assert bob.get("/v1/tokens").status_code == 403


def test_a_revoked_token_opens_nothing_from_its_revocation_on_and_a_restart_keeps_both(tmp_path: Path) -> None:
    with people_of_one_server(tmp_path / "home") as people:
        with people.client("root") as root:
            tokens = {each["user"]: each for each in root.get("/v1/tokens").json()}
            assert {"vera", "bob", "ann", "olga"} == set(tokens)
            assert not any(people.tokens["bob"] in str(each) for each in tokens.values())
            assert root.delete(f"/v1/tokens/{tokens['bob']['id']}").status_code == 204
        assert ask(people, "bob", "GET /v1/me") == (401, "unauthorized")
        people.server.kill()
        people.server.start()
        assert ask(people, "bob", "GET /v1/me") == (401, "unauthorized")
        assert ask(people, "ann", "GET /v1/me") == (200, "")


def test_the_store_has_no_secret_of_a_token(people: People) -> None:
    content = b"".join(path.read_bytes() for path in people.server.home.glob("state.db*"))
    assert b"access_tokens" in content
    for user in ("vera", "bob", "ann", "olga"):
        assert str(people.tokens[user]).encode() not in content


def test_only_who_is_named_by_the_kernel_gets_the_token_of_a_link(people: People) -> None:
    for caller in ("vera", "bob", "root"):
        assert ask(people, caller, "POST /v1/me/link") == (409, "not-local")


def test_a_link_has_the_role_that_its_user_has_when_it_is_used() -> None:
    with Lab() as lab:
        _, secret = lab.service.tokens.create_link("nobody", Role.OPERATOR, lambda: None)
        scope = {"type": "http", "method": "GET", "scheme": "http", "server": ("127.0.0.1", 8080)}
        request = HTTPConnection({**scope, "headers": [(b"authorization", b"Bearer " + secret.encode())]})

        def identify(rules: AccessRules) -> Identity | NotAdmitted:
            known = SimpleNamespace(access=rules, tokens=lab.service.tokens, system_users=SystemUsers())
            return Callers("token of the file", known).identify(request)  # type: ignore[arg-type]  # its three parts

        for role in (Role.OPERATOR, Role.VIEWER):
            found = identify(AccessRules(users={"nobody": role}))
            assert (found.user, found.role, found.proof) == ("nobody", role, "token")
        refused = identify(AccessRules(default=None))
        assert (refused.status, refused.code) == (403, "no-role")
        lab.pass_time(LINK_S)
        expired = identify(AccessRules(users={"nobody": Role.VIEWER}))
        assert (expired.status, expired.code) == (401, "token-expired")
        assert "`ullage page` prints a new one" in expired.message


def test_a_user_has_few_links_and_the_oldest_ends() -> None:
    with Lab() as lab:
        tokens = lab.service.tokens
        own, _ = tokens.create("ann", Role.USER, None, "ann", lambda: None)
        of_bob, _ = tokens.create_link("bob", Role.USER, lambda: None)
        links = []
        for _ in range(MAX_LINKS + 1):
            links.append(tokens.create_link("ann", Role.USER, lambda: None)[0])
            lab.pass_time(1)
        assert set(tokens.all()) == {own, of_bob, *links[1:]}
        lab.pass_time(LINK_S)
        last, _ = tokens.create_link("ann", Role.USER, lambda: None)
        assert set(tokens.all()) == {own, of_bob, last}


def test_a_token_ends_at_its_time() -> None:
    with Lab() as lab:
        token, secret = lab.service.tokens.create("ann", Role.USER, 60.0, "root", lambda: None)
        assert lab.service.tokens.of_secret(secret) == token
        assert not lab.service.tokens.is_expired(token)
        lab.pass_time(60)
        assert lab.service.tokens.is_expired(token)


def test_a_route_without_a_role_is_refused_at_its_declaration() -> None:
    async def handler() -> None:
        """Do nothing."""

    with pytest.raises(TypeError, match=r"GET /v1/new declares no role: write @needs"):
        route("GET", "/v1/new", "tests")(handler)
    route("GET", "/v1/new", "tests")(needs(Role.VIEWER)(handler))
    with pytest.raises(TypeError, match=r"nothing says who may use /v1/other"):
        require_declared(["/healthz", "/v1/other"])


# --- verbs ---


def test_every_verb_has_an_entry_in_the_matrix() -> None:
    assert set(VERBS) == set(verbs.VERBS)


LINES = [(line, needed) for entries in VERBS.values() for line, needed in entries if needed != HERE]


@pytest.mark.parametrize(("line", "needed"), LINES, ids=[line for line, _ in LINES])
def test_a_verb_is_refused_to_whom_its_routes_are(
    people: People,
    line: str,
    needed: tuple[int, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    application = tmp_path / "application.toml"
    application.write_text('name = "echo"\ncommand = "cat"\n')
    monkeypatch.setenv("ULLAGE_HOME", str(tmp_path))
    monkeypatch.setenv("ULLAGE_ENDPOINT", people.server.url)
    for caller in CALLERS:
        token = people.tokens[caller]
        if token is None:
            monkeypatch.delenv("ULLAGE_TOKEN", raising=False)
        else:
            monkeypatch.setenv("ULLAGE_TOKEN", token)
        allowed = may(caller, needed)
        if allowed and needed[1]:
            continue  # it would change what the next line needs; the matrix of routes has this
        code = main(line.replace("APPLICATION", str(application)).split())
        printed = capsys.readouterr()
        refused = re.search(r"needs the role|belongs to ann|a token is needed", printed.err)
        assert bool(refused) is not allowed, (caller, code, printed.err)
        if not allowed:
            assert code == 2


@pytest.mark.parametrize("caller", ["ann", "bob"])
def test_cancel_me_selects_the_work_of_the_user_of_the_token(
    people: People, caller: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ULLAGE_ENDPOINT", people.server.url)
    monkeypatch.setenv("ULLAGE_TOKEN", people.tokens[caller] or "")
    assert main(["cancel", "--me", "--dry-run"]) == 0
    selected = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert ("would cancel work" in selected) is (caller == "ann")  # bob has sessions of his own
