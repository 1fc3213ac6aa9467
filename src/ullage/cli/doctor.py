"""`ullage doctor`: what is wrong with this machine or its server, each with what mends it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from ullage.cli import home_checks
from ullage.cli.exits import NO
from ullage.cli.output import DATA, add_output, print_data
from ullage.cli.why import add_cluster
from ullage.client.endpoint import configured, looked_after
from ullage.client.local import INSTALL, missing_packages
from ullage.model.counted import counted
from ullage.model.error import UllageError
from ullage.model.variables import unknown_variables
from ullage.wire.finding import BAD, OK, WARN, Finding

_DRIVER = (Path("/dev/nvidiactl"), Path("/proc/driver/nvidia/version"))
"""Files of a driver of NVIDIA."""

_INDENT = 17
"""Characters before the text of a finding."""


def configure_doctor(parser: argparse.ArgumentParser) -> None:
    add_cluster(parser)
    add_output(parser)
    parser.epilog = f"{parser.epilog}. It changes nothing, and needs no server. Exit code 1: something is bad"
    parser.set_defaults(act=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    found = list(_findings(arguments))
    if arguments.output in DATA:
        print_data(found, arguments.output)
    else:
        for finding in found:
            print(f"{finding.verdict:4}  {finding.check:9}  {finding.text}")
            if finding.fix:
                print(f"{'':{_INDENT}}{finding.fix}")
        print(f"\n{_summary(found)}")
    return NO if any(finding.verdict == BAD for finding in found) else 0


def _summary(found: Sequence[Finding]) -> str:
    numbers = {verdict: sum(each.verdict == verdict for each in found) for verdict in (OK, WARN, BAD)}
    if numbers[BAD]:
        return f"{counted(numbers[BAD], 'check')} bad, {counted(numbers[WARN], 'warning')}"
    return f"nothing is bad, {counted(numbers[WARN], 'warning')}"


def _findings(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Yield what each check finds; a check that fails is a finding too."""
    place = None if os.environ.get("ULLAGE_ENDPOINT") else looked_after()
    checks: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("python", lambda: _python(remote=place is None)),
        ("variables", _variables),
    ]
    if place is not None:
        checks += [
            ("home", lambda: home_checks.check_home(place.home)),
            ("token", lambda: home_checks.check_token(place.home)),
            ("disk", lambda: home_checks.check_disk(place.home)),
        ]
    checks.append(("server", home_checks.check_server))
    if place is not None and not missing_packages():
        from ullage.bootstrap import database_check, machine_checks  # noqa: PLC0415  # packages of the server

        checks += [
            ("settings", lambda: machine_checks.check_settings(place)),
            ("database", lambda: database_check.check_database(place)),
            ("cards", machine_checks.check_cards),
            ("cgroups", machine_checks.check_cgroups),
            ("compiler", machine_checks.check_compiler),
        ]
    if arguments.kubeconfig is not None or arguments.context is not None:
        checks.append(("cluster", lambda: _cluster(arguments)))
    for name, check in checks:
        try:
            yield from check()
        except (UllageError, OSError) as error:
            yield Finding(name, BAD, str(error))


def _python(*, remote: bool) -> Iterator[Finding]:
    yield Finding("python", OK, f"Python {sys.version.partition(' ')[0]} at {sys.executable}")
    missing = missing_packages()
    if missing and not remote:
        text = f"{', '.join(missing)} not installed, so no local server can be started here"
        yield Finding("packages", WARN, text, f"{INSTALL}, or name a server with ULLAGE_ENDPOINT")
    elif any(file.exists() for file in _DRIVER) and find_spec("pynvml") is None:
        text = "there is a driver of NVIDIA, but nvidia-ml-py is not installed, so no card is found"
        yield Finding("packages", BAD, text, "pip install 'ullage[gpu]'")
    else:
        yield Finding("packages", OK, "all that is needed here is installed")


def _variables() -> Iterator[Finding]:
    unknown = unknown_variables(os.environ)
    for text in unknown:
        yield Finding("variables", WARN, text, "correct its name, or unset it")
    there = configured()
    if there is not None:
        yield Finding("variables", OK, f"ULLAGE_ENDPOINT names the server at {there.url}")
    elif not unknown:
        yield Finding("variables", OK, "no variable of Ullage is misspelt")


def _cluster(arguments: argparse.Namespace) -> Iterator[Finding]:
    from ullage.cli.why import require_packages  # noqa: PLC0415  # for this check only

    require_packages()
    from ullage.bootstrap.cluster_check import check_cluster  # noqa: PLC0415  # packages of clusters

    yield from check_cluster(arguments.kubeconfig, arguments.context)
