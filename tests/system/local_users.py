"""Users made for a test, a Python that they may run, and processes that run as them. Only root can have them."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ullage

CHECK = "import ullage, msgspec, cloudpickle, rich, uvicorn, sqlalchemy, numpy"


class LocalUsers:
    """A directory that every user may enter, and users with homes in it."""

    def __init__(self, place: Path, names: dict[str, str]) -> None:
        self.place = place
        self.names = names
        self.python = ""

    def name(self, who: str) -> str:
        return self.names[who]

    def account(self, who: str) -> pwd.struct_passwd:
        return pwd.getpwnam(self.names[who])

    def run(self, who: str, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program as a user, with its own home and none of the test's variables."""
        account = self.account(who)
        own = {"PATH": os.environ["PATH"], "HOME": account.pw_dir, "USER": account.pw_name, "NUMBA_DISABLE_JIT": "1"}
        return subprocess.run(
            argv,
            env=own | environment,
            cwd=account.pw_dir,
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=os.getgrouplist(account.pw_name, account.pw_gid),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def ullage(self, who: str, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the command line as a user."""
        return self.run(who, self.python, "-m", "ullage.cli.main", *argv, **environment)


@contextmanager
def local_users(*who: str) -> Iterator[LocalUsers]:
    """Make users; skip the test where nobody can."""
    if os.geteuid() != 0:
        pytest.skip("only root can make users, and run work as them")
    for program in ("useradd", "userdel"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} here")
    place = Path(tempfile.mkdtemp(prefix="ullage-users-"))
    place.chmod(0o755)
    users = LocalUsers(place, {each: f"ullage-{each}-{os.getpid()}" for each in who})
    try:
        for name in users.names.values():
            home = place / name
            command = ["useradd", "--create-home", "--user-group", "--home-dir", str(home), "--shell", "/bin/sh", name]
            subprocess.run(command, check=True, capture_output=True)
        users.python = _python_for_all(users)
        yield users
    finally:
        for name in users.names.values():
            subprocess.run(["userdel", "--remove", name], check=False, capture_output=True)
        shutil.rmtree(place, ignore_errors=True)


def _python_for_all(users: LocalUsers) -> str:
    """Return an interpreter with Ullage that other users may run: this one, or the system's with these packages."""
    who = next(iter(users.names))
    if _can_run(users, who, sys.executable):
        return sys.executable
    system = shutil.which("python3", path="/usr/bin")
    if system is not None:
        folder = users.place / "python"
        made = subprocess.run([system, "-m", "venv", "--without-pip", str(folder)], check=False, capture_output=True)
        if made.returncode == 0:
            (site,) = (folder / "lib").glob("python*/site-packages")
            paths = [str(Path(ullage.__file__).parents[1]), *(each for each in sys.path if "site-packages" in each)]
            (site / "ullage.pth").write_text("".join(f"{path}\n" for path in paths))
            python = str(folder / "bin/python")
            if _can_run(users, who, python):
                return python
    pytest.skip("no Python with these packages can be run by other users")


def _can_run(users: LocalUsers, who: str, python: str) -> bool:
    try:
        return users.run(who, python, "-c", CHECK).returncode == 0
    except PermissionError:
        return False
