"""Several people of one machine: the kernel names them, and their work runs as them."""

from __future__ import annotations

import base64
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import msgspec
import pytest

from tests.system.live_server import LiveServer, wait_until
from tests.system.local_users import LocalUsers, local_users
from ullage.engines.local.card_devices import CLOSED

SETTINGS = """
[node]
gpus = 2
[[node.card]]
ids = ["0"]
devices = ["{place}/card0"]
[[node.card]]
ids = ["1"]
devices = ["{place}/card1"]
[users]
default = "user"
run_as = "owner"
socket = "{socket}"
[users.roles]
{vera} = "viewer"
[users.groups]
{olga} = "operator"
"""


class Service:
    def __init__(self, users: LocalUsers, server: LiveServer) -> None:
        self.users, self.server = users, server

    def ullage(self, who: str, *argv: str) -> tuple[int, str, str]:
        done = self.users.ullage(who, *argv, ULLAGE_SYSTEM=str(self.users.place / "run"))
        return done.returncode, done.stdout, done.stderr

    def ran(self, who: str, *argv: str) -> str:
        code, out, err = self.ullage(who, *argv)
        assert code == 0, err
        return out

    def shell(self, who: str, script: str) -> str:
        return self.ran(who, "run", "-r", "cpu=0.1", "--", "sh", "-c", script)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """A server that runs as root, and four users who find it by its socket."""
    with local_users("ann", "bob", "vera", "olga") as users:
        home = users.place / "state"
        home.mkdir(mode=0o700)
        for name, minor in (("card0", 5), ("card1", 7)):  # the numbers of /dev/zero and /dev/full
            os.mknod(users.place / name, stat.S_IFCHR | 0o666, os.makedev(1, minor))
            (users.place / name).chmod(0o666)
        names = {who: users.name(who) for who in users.names}
        (home / "ullage.toml").write_text(SETTINGS.format(place=users.place, socket=users.place / "run", **names))
        server = LiveServer(home)
        server.python = users.python
        with server:
            yield Service(users, server)


def test_the_kernel_names_each_caller_and_no_token_is_needed(service: Service) -> None:
    for who, role in (("ann", "user"), ("vera", "viewer"), ("olga", "operator")):
        assert service.ran(who, "whoami") == f"{service.users.name(who)} ({role}, by socket)\n"


def link_of(service: Service, who: str) -> httpx2.Client:
    """Return a browser, as far as tokens go, that has opened the link of a user."""
    there, _, token = service.ran(who, "page").strip().partition("/enter#")
    return httpx2.Client(base_url=there, headers={"Authorization": f"Bearer {token}"})


def test_every_user_has_a_link_to_the_page_with_its_own_role(service: Service) -> None:
    for who, role in (("ann", "user"), ("vera", "viewer"), ("olga", "operator")):
        with link_of(service, who) as browser:
            me = browser.get("/v1/me").json()
            assert (me["user"], me["role"], me["proof"]) == (service.users.name(who), role, "token")
            key = browser.post("/v1/admit").json()["key"]
            browser.headers["Authorization"] = f"Page {key}"
            assert browser.get("/v1/me").json()["user"] == service.users.name(who)


def test_a_viewer_is_refused_and_told_why(service: Service) -> None:
    code, _, err = service.ullage("vera", "run", "--", "true")
    assert code == 2
    assert f"needs the role user; you are {service.users.name('vera')} with the role viewer" in err


def test_the_work_of_a_session_runs_as_its_owner(service: Service) -> None:
    account = service.users.account("ann")
    groups = sorted(os.getgrouplist(account.pw_name, account.pw_gid))
    shown = service.shell("ann", 'echo "$(id -u) $(id -g) $(id -G) $HOME $USER ${LOGNAME-} $(umask)"')
    uid, gid, *rest = shown.split()
    assert (int(uid), int(gid)) == (account.pw_uid, account.pw_gid)
    assert sorted(map(int, rest[: len(groups)])) == groups
    assert rest[len(groups) :] == [account.pw_dir, account.pw_name, account.pw_name, "0022"]
    assert service.shell("bob", "id -u").split() == [str(service.users.account("bob").pw_uid)]


def test_a_function_of_a_client_runs_as_its_user(service: Service) -> None:
    script = Path(service.users.account("ann").pw_dir) / "who.py"
    script.write_text(
        "import os, ullage\n"
        "def who():\n    return os.getuid(), os.getcwd(), os.environ['HOME']\n"
        "with ullage.connect() as client, client.session(resreq='cpu=0.1') as session:\n"
        "    print(*session.submit(who).result())\n"
    )
    script.chmod(0o644)
    place = str(service.users.place / "run")
    done = service.users.run("ann", service.users.python, str(script), ULLAGE_SYSTEM=place)
    account = service.users.account("ann")
    assert done.stdout.split() == [str(account.pw_uid), account.pw_dir, account.pw_dir], done.stderr


def test_a_client_inside_of_work_is_the_owner_of_that_work(service: Service) -> None:
    shown = service.shell("ann", f"{service.users.python} -m ullage.cli.main whoami")
    assert shown == f"{service.users.name('ann')} (user, by socket)\n"


def test_nobody_else_reads_the_logs_the_state_or_the_token(service: Service) -> None:
    session = service.ran("ann", "submit", "-r", "cpu=0.1", "--", "echo", "secret").split()[0]
    wait_until(lambda: service.ullage("ann", "logs", session)[1] == "secret\n", "the program has printed")
    (logs,) = (service.server.home / "logs/tasks").glob(f"{session}@*")
    assert (logs.stat().st_uid, logs.stat().st_mode & 0o777) == (service.users.account("ann").pw_uid, 0o700)
    assert service.users.run("ann", "cat", str(logs / "1.out")).stdout == "secret\n"
    assert service.users.run("bob", "cat", str(logs / "1.out")).returncode != 0
    for name in ("state.db", "token", "server.json", "logs/tasks", "logs/executors"):
        assert service.users.run("ann", "cat", str(service.server.home / name)).returncode != 0, name
        assert service.users.run("ann", "ls", str(service.server.home / name / "x")).returncode != 0
    assert service.users.run("ann", "ls", str(service.server.home)).returncode != 0
    code, _, err = service.ullage("bob", "logs", session)
    assert code == 2
    assert "belongs to" in err


def test_a_log_that_its_owner_replaced_by_a_link_is_not_read(service: Service) -> None:
    session = service.ran("ann", "submit", "-r", "cpu=0.1", "--", "echo", "mine").split()[0]
    wait_until(lambda: service.ullage("ann", "logs", session)[1] == "mine\n", "the program has printed")
    (logs,) = (service.server.home / "logs/tasks").glob(f"{session}@*")
    assert (
        service.users.run("ann", "ln", "-sf", str(service.server.home / "token"), str(logs / "1.out")).returncode == 0
    )
    _, out, err = service.ullage("ann", "logs", session)
    assert service.server.token not in out + err


def test_work_opens_the_card_that_it_holds_and_no_other_one(service: Service) -> None:
    with service.server.client() as client:
        isolation = client.get("/v1/server").json()["isolation"]
    if CLOSED not in isolation:
        pytest.skip(isolation)
    look = "".join(f"head -c1 {service.users.place}/card{n} >/dev/null 2>&1 && echo {n};" for n in (0, 1)) + "true"
    assert service.shell("ann", look) == ""
    code, out, err = service.ullage("ann", "run", "-r", "gpu=1,cpu=0.1", "--", "sh", "-c", look)
    assert (code, len(out.split())) == (0, 1), err
    code, out, err = service.ullage("bob", "run", "-r", "gpu=2,cpu=0.1", "--", "sh", "-c", look)
    assert (code, out.split()) == (0, ["0", "1"]), err


def test_a_program_beside_a_task_runs_as_the_owner_of_the_task_whoever_asks(service: Service) -> None:
    account = service.users.account("ann")
    session = service.ran("ann", "submit", "-r", "cpu=0.1", "--", "sleep", "4712").split()[0]
    wait_until(lambda: "running" in service.ullage("ann", "tasks", session)[1], "it runs")
    show = 'echo "$(id -u) $(id -g) $(id -G) $HOME $(umask)"; pwd'
    for who in ("ann", "olga"):  # olga is an operator
        shown = service.ran(who, "exec", session, "--", "sh", "-c", show).split()
        groups = map(str, sorted(os.getgrouplist(account.pw_name, account.pw_gid)))
        ids = [str(account.pw_uid), str(account.pw_gid)]
        assert (shown[:2], sorted(shown[2:-3], key=int)) == (ids, sorted(groups, key=int))
        assert shown[-3:] == [account.pw_dir, "0022", account.pw_dir]
    events = service.ran("ann", "events", "--session", session)
    assert f"{service.users.name('olga')} runs sh in " in events
    for who, text in (("bob", "belongs to"), ("vera", "needs the role user")):
        code, _, err = service.ullage(who, "exec", session, "--", "true")
        assert code == 2
        assert text in err
    service.ran("ann", "cancel", session)


def test_nobody_but_root_runs_a_program_beside_work_of_root(service: Service) -> None:
    with service.server.client() as root:
        body = {"application": "command", "id": "of-root", "owner": "root", "resreq": "cpu=0.1"}
        root.post("/v1/sessions", json=body).raise_for_status()
        program = base64.b64encode(msgspec.msgpack.encode({"argv": ["sleep", "4713"]})).decode()
        root.post("/v1/sessions/of-root/tasks", json={"inputs": [program], "key": "k"}).raise_for_status()
        wait_until(lambda: root.get("/v1/sessions/of-root/tasks/1").json()["state"] == "running", "it runs")
        code, _, err = service.ullage("olga", "exec", "of-root", "--", "id")
        assert code == 2
        assert "only an administrator may have work that runs as root" in err
        root.post("/v1/sessions/of-root/cancel").raise_for_status()


def test_cancelling_ends_all_that_the_work_of_a_user_has_started(service: Service) -> None:
    account = service.users.account("bob")
    script = "setsid sleep 4711 & (sleep 4711 &) ; sleep 4711"
    session = service.ran("bob", "submit", "-r", "cpu=0.1", "--", "sh", "-c", script).split()[0]
    wait_until(lambda: len(_sleeping(account.pw_uid)) == 3, "all three sleep")
    service.ran("bob", "cancel", session)
    wait_until(lambda: not _sleeping(account.pw_uid), "none is left")


def _sleeping(uid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and entry.stat().st_uid == uid and b"4711" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if b"sleep\0004711" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_an_executor_is_never_given_to_another_user(service: Service) -> None:
    first = service.shell("ann", "echo $ULLAGE_EXECUTOR")
    second = service.shell("bob", "echo $ULLAGE_EXECUTOR")
    assert first != second
    assert service.shell("ann", "id -u") != service.shell("bob", "id -u")


def test_an_operator_acts_for_others_and_never_as_root(service: Service) -> None:
    script = Path(service.users.account("olga").pw_dir) / "other.py"
    script.write_text(
        "import os, sys, ullage\n"
        "with ullage.connect() as client, client.session(resreq='cpu=0.1', owner=sys.argv[1]) as session:\n"
        "    print(session.submit(os.getuid).result())\n"
    )
    script.chmod(0o644)
    place = str(service.users.place / "run")

    def run(owner: str) -> tuple[str, str]:
        done = service.users.run("olga", service.users.python, str(script), owner, ULLAGE_SYSTEM=place)
        return done.stdout.strip(), done.stderr

    out, err = run(service.users.name("ann"))
    assert out == str(service.users.account("ann").pw_uid), err
    assert "only an administrator may have work that runs as root" in run("root")[1]
    assert "this machine has no user 'nobody-of-this-name'" in run("nobody-of-this-name")[1]


def test_a_server_that_is_not_root_refuses_to_run_work_as_its_owners(service: Service) -> None:
    home = Path(service.users.account("ann").pw_dir) / "home"
    service.users.run("ann", "mkdir", str(home))
    (home / "ullage.toml").write_text('[users]\nrun_as = "owner"\nsocket = "/nowhere"\n')
    (home / "ullage.toml").chmod(0o644)
    done = service.users.ullage("ann", "up", "--foreground", "--port=0", ULLAGE_HOME=str(home))
    assert done.returncode == 2
    assert "users.run_as: 'owner' is not valid: only root may run work as its owner" in done.stderr


def test_the_server_of_a_user_comes_before_that_of_the_system(service: Service) -> None:
    """A user who starts a server of its own uses that one."""
    started = time.monotonic()
    place = str(service.users.place / "run")
    up = service.users.ullage("bob", "up", "--port=0", ULLAGE_SYSTEM=place)
    assert up.returncode == 0, (up.stderr, time.monotonic() - started)
    try:
        assert service.ran("bob", "whoami").endswith("(admin, by token file)\n")
    finally:
        assert service.users.ullage("bob", "down", ULLAGE_SYSTEM=place).returncode == 0
    assert service.ran("bob", "whoami").endswith("(user, by socket)\n")
