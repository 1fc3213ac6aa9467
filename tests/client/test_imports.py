"""Imports: a quick start needs that these modules are not loaded."""

import subprocess
import sys

import pytest

import ullage

HEAVY = ("numpy", "sqlalchemy", "rich", "starlette", "uvicorn", "httpx", "asyncio", "ullage.core", "ullage.service")


def imported_by(statement):
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_importing_the_package_imports_nothing_else():
    assert {name for name in imported_by("import ullage") if name.startswith("ullage.")} == set()
    assert not imported_by("import ullage") & {"typing", "dataclasses", "msgspec", "http.client"}


def test_the_client_is_light():
    assert not imported_by("import ullage; ullage.connect; ullage.Executor") & set(HEAVY)


@pytest.mark.parametrize(
    "verb", ["queue", "sessions", "nodes", "run", "why", "top", "logs", "adjust", "gang", "quotas", "replay"]
)
def test_the_command_line_is_light(verb):
    modules = imported_by(f"from ullage.cli.main import build_parser; build_parser({verb!r})")
    assert not modules & {*HEAVY, "cloudpickle", "concurrent.futures.thread", "subprocess"}


def test_help_does_not_even_import_the_client():
    modules = imported_by("from ullage.cli.main import build_parser; build_parser('')")
    assert not modules & {*HEAVY, "msgspec", "http.client"}


def test_a_server_starts_without_optional_modules():
    modules = imported_by("import ullage.bootstrap.server")
    assert not modules & {"alembic", "mako", "rich", "pygments", "httpx2", "cloudpickle", "ullage.kube.front"}


@pytest.mark.parametrize("name", ullage.__all__)
def test_every_exported_name_is_there(name):
    assert getattr(ullage, name) is not None
    assert name in dir(ullage)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = ullage.nothing_like_this
