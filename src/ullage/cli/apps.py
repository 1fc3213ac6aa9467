"""`ullage apps`: list, register and remove applications."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec

from ullage.cli.listing import Listing
from ullage.cli.output import Column, add_output, print_one
from ullage.client.local import reach
from ullage.model.error import InvalidRequest, invalid
from ullage.wire.catalog import ApplicationBody, PutApplicationBody
from ullage.wire.nan import refuse_nan
from ullage.wire.unknown_field import with_known_fields

_COLUMNS = (
    Column("NAME", lambda a: a.name),
    Column("ENABLED", lambda a: a.enabled),
    Column("BUILT IN", lambda a: a.built_in, wide=True),
    Column("COMMAND", lambda a: " ".join((a.command, *a.arguments))),
    Column("MAX", lambda a: a.max_instances, wide=True),
    Column("RETRIES", lambda a: a.retries, wide=True),
    Column("TIMEOUT", lambda a: a.task_timeout_s, wide=True),
    Column("DELAY", lambda a: a.delay_release_s, wide=True),
    Column("DESCRIPTION", lambda a: a.description),
)


_STATES = ("enabled", "disabled")
APPLICATIONS = Listing(
    kind="application",
    columns=_COLUMNS,
    body=ApplicationBody,
    name=lambda application: application.name,
    known_states=_STATES,
    states_of=lambda application: (_STATES[not application.enabled],),
)


def configure_apps(parser: argparse.ArgumentParser) -> None:
    actions = APPLICATIONS.configure_with_actions(
        parser, lambda _: reach(start=False).applications(), "ullage apps list -o wide"
    )
    register = actions.add_parser(
        "register",
        help="register an application, or replace one",
        description="The file holds `name` and the fields of the application, as TOML or JSON.",
        epilog="example: ullage apps register -f echo.toml",
    )
    register.add_argument("-f", "--file", type=Path, required=True, metavar="FILE", help="FILE.toml or FILE.json")
    add_output(register, inner=True)
    register.set_defaults(act=_register)
    remove = actions.add_parser(
        "unregister", help="remove an application", epilog="example: ullage apps unregister echo"
    )
    remove.add_argument("name", metavar="NAME")
    remove.set_defaults(act=_unregister)


def _register(arguments: argparse.Namespace) -> int:
    name, spec = read_application(arguments.file)
    print_one(reach(start=True).put_application(name, spec), arguments.output)
    return 0


def _unregister(arguments: argparse.Namespace) -> int:
    reach(start=False).delete_application(arguments.name)
    return 0


def read_application(path: Path) -> tuple[str, PutApplicationBody]:
    """Return the application in a TOML or JSON file.

    Raises:
        InvalidRequest: the file cannot be read, or a field is missing, unknown or of the wrong type.

    """
    try:
        fields = _decode(path)
    except OSError as error:
        raise invalid("file", str(path), f"it cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise invalid("file", str(path), f"it is not TOML or JSON: {error}") from None
    if not isinstance(fields, dict) or not isinstance(name := fields.pop("name", None), str):
        raise invalid("file", str(path), 'give the application a name, as in name = "echo"')
    refuse_nan(fields)
    try:
        return name, msgspec.convert(fields, type=PutApplicationBody)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{path}: {with_known_fields(error, PutApplicationBody)}", field="file") from None


def _decode(path: Path) -> Any:
    data = path.read_bytes()
    if path.suffix == ".json":
        return msgspec.json.decode(data)
    import tomllib  # noqa: PLC0415  # needed only here

    return tomllib.loads(data.decode())
