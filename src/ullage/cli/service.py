"""`ullage service`: the server as a service of this machine, for all its users."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from pathlib import Path

from ullage.cli.exits import NO, caution
from ullage.client.endpoint import SYSTEM, SYSTEM_HOME, SYSTEM_SETTINGS, UNIT, nearby
from ullage.client.local import answers
from ullage.model.error import Forbidden, Unavailable

SETTINGS = SYSTEM_SETTINGS.removeprefix("/")
_SYSTEMD = Path("/run/systemd/system")
"""Exists where systemd runs: sd_booted(3)."""

_UNIT_TEXT = """\
# Written by `ullage service install`. Put changes into `systemctl edit ullage`.
[Unit]
Description=Ullage places work on the GPUs of this machine
After=network.target nss-user-lookup.target remote-fs.target

[Service]
Type=exec
ExecStart={python} -m ullage.cli.main up --foreground --config /{settings}
Environment=ULLAGE_HOME={state}
RuntimeDirectory=ullage
RuntimeDirectoryMode=0755
StateDirectory=ullage
StateDirectoryMode=0711
ConfigurationDirectory=ullage
UMask=0077
Restart=on-failure
RestartSec=2
# The server ends its work in order; what is left then is killed.
KillMode=mixed
TimeoutStopSec=90
# The server limits each piece of work in a cgroup below its own.
Delegate=yes
OOMPolicy=continue
LimitNOFILE=65536

# Work runs in this unit as its owner, so homes, /tmp and the devices stay open.
ProtectSystem=full
ReadWritePaths=-/etc/ullage
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectKernelTunables=yes
ProtectHostname=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
# To become the owners of work, to reach, signal and see their processes and files, to set CPUs and limits.
CapabilityBoundingSet=CAP_SETUID CAP_SETGID CAP_CHOWN CAP_FOWNER CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH
CapabilityBoundingSet=CAP_KILL CAP_SYS_PTRACE CAP_SYS_NICE CAP_SYS_RESOURCE
# To close cards by the device cgroup.
CapabilityBoundingSet=CAP_SYS_ADMIN

[Install]
WantedBy=multi-user.target
"""

_SETTINGS_TEXT = """\
# The settings of the Ullage service: `ullage settings --all` lists them all with their meaning.
[users]
default = "user"
reads = "all"
run_as = "owner"
socket = "{socket}"

# [users.roles]
# olga = "operator"
#
# [users.groups]
# gpu-admins = "admin"
"""


def configure_service(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    install = actions.add_parser(
        "install",
        help="install the service, and start it",
        description=f"Write /{UNIT} and, if there is none, /{SETTINGS}; then start the service. "
        f"Its state is in {SYSTEM_HOME}, its socket in {SYSTEM}.",
        epilog="example: ullage service install --print",
    )
    install.add_argument("--print", action="store_true", help="print the unit, and change nothing")
    install.add_argument("--root", type=Path, metavar="DIR", help="write below DIR, as for an image; start nothing")
    install.add_argument("--no-start", action="store_true", help="write the files only")
    install.set_defaults(act=_install)
    uninstall = actions.add_parser(
        "uninstall", help="end and remove the service; its state stays", epilog="example: ullage service uninstall"
    )
    uninstall.add_argument("--root", type=Path, metavar="DIR", help="remove below DIR")
    uninstall.set_defaults(act=_uninstall)
    status = actions.add_parser(
        "status", help="whether the service is installed and answers", epilog="example: ullage service status"
    )
    status.set_defaults(act=_status)


def unit_text(python: str) -> str:
    """Return the unit that runs the server by this interpreter."""
    return _UNIT_TEXT.format(python=python, settings=SETTINGS, state=SYSTEM_HOME)


def _install(arguments: argparse.Namespace) -> int:
    text = unit_text(sys.executable)
    if arguments.print:
        print(text, end="")
        return 0
    root = arguments.root or Path("/")
    _require_root(arguments.root, "install")
    if (closed := closed_to_others(Path(sys.executable))) is not None:
        caution([f"other users may not enter {closed}, so work that runs as them cannot start {sys.executable}"])
    unit, settings = root / UNIT, root / SETTINGS
    for path in (unit, settings):
        path.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text(text)
    print(f"wrote {unit}")
    if not settings.exists():
        settings.write_text(_SETTINGS_TEXT.format(socket=SYSTEM))
        print(f"wrote {settings}")
    if arguments.root is not None or arguments.no_start:
        return 0
    if not _SYSTEMD.exists():
        print(
            f"systemd does not run here: start `ULLAGE_HOME={SYSTEM_HOME} {sys.executable} -m ullage.cli.main up "
            f"--foreground --config {settings}` by another way"
        )
        return 0
    _systemctl("daemon-reload")
    _systemctl("enable", "--now", "ullage.service")
    print(f"the service runs; everyone on this machine finds it in {SYSTEM}")
    return 0


def _uninstall(arguments: argparse.Namespace) -> int:
    _require_root(arguments.root, "uninstall")
    unit = (arguments.root or Path("/")) / UNIT
    if not unit.exists():
        print(f"there is no {unit}")
        return 0
    runs = arguments.root is None and _SYSTEMD.exists()
    if runs:
        _systemctl("disable", "--now", "ullage.service")
    unit.unlink()
    if runs:
        _systemctl("daemon-reload")
    print(f"removed {unit}; the state in {SYSTEM_HOME} and the settings in /{SETTINGS} stay")
    return 0


def _status(_: argparse.Namespace) -> int:
    unit = Path("/") / UNIT
    print(f"unit    {unit if unit.exists() else 'not installed'}")
    there = nearby()
    place = os.environ.get("ULLAGE_SYSTEM") or SYSTEM
    if there is None or there.home != place or not answers(there):
        print(f"server  none answers in {place}")
        return NO
    print(f"server  answers in {place} (process {there.pid}, {there.url})")
    return 0


def closed_to_others(program: Path) -> Path | None:
    """Return the first directory on the way to a program that other users may not enter; None if they reach it."""
    for path in (program, program.resolve()):
        for folder in reversed(path.parents):
            if folder.exists() and not folder.stat().st_mode & stat.S_IXOTH:
                return folder
    return None


def _require_root(root: Path | None, action: str) -> None:
    """Refuse to change the system as another user than root.

    Raises:
        Forbidden: this process is not root (`not-root`).

    """
    if root is None and os.geteuid() != 0:
        text = f"only root may {action} the service: repeat it with sudo, or see the unit with `install --print`"
        raise Forbidden(text, code="not-root")


def _systemctl(*arguments: str) -> None:
    """Run systemctl.

    Raises:
        Unavailable: it fails (`systemctl-failed`).

    """
    import subprocess  # noqa: PLC0415  # needed only here

    command = ["systemctl", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # fixed arguments
    if done.returncode:
        raise Unavailable(f"systemctl {' '.join(arguments)}: {done.stderr.strip()}", code="systemctl-failed")
