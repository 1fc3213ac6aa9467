"""Checks of this machine as a server would use it: its settings, cards, cgroups, and compiled code. Nothing changes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ullage.bootstrap.settings import read_settings
from ullage.bootstrap.settings_changes import RESTART, unread_settings
from ullage.bootstrap.settings_check import check_here
from ullage.client.endpoint import SETTINGS_FILE, ServerPlace
from ullage.engines.local.cgroup import survey
from ullage.inventory.nvml import CardReader, CardsUnreadable, NvmlCards
from ullage.model.counted import counted
from ullage.model.error import UllageError
from ullage.wire.finding import BAD, OK, WARN, Finding

_DEVICES = Path("/dev/nvidiactl")
"""The device of a loaded driver of NVIDIA."""


def check_settings(place: ServerPlace) -> Iterator[Finding]:
    """Check the settings file of a server as its start does."""
    try:
        warnings = check_here(read_settings(place.settings, os.environ), os.environ)
    except UllageError as error:
        fix = "correct it: the server does not start with it; one that runs keeps the settings it has"
        yield Finding("settings", BAD, error.message, fix)
    else:
        none = f"there is no {place.home / SETTINGS_FILE}; variables and defaults are valid"
        text = none if place.settings is None else f"{place.settings} is valid"
        yield Finding("settings", OK, f"{text}; `ullage settings` shows all")
        if unread := unread_settings(place):
            text = f"{', '.join(unread)} changed since the server started, which reads its settings only then"
            yield Finding("settings", WARN, text, RESTART)
        for warning in warnings:
            yield Finding("settings", WARN, warning)


def check_cards(reader: CardReader | None = None, *, driver: bool | None = None) -> Iterator[Finding]:
    """Check that NVML finds the cards of a driver, and that all of them work."""
    has_driver = _DEVICES.exists() if driver is None else driver
    try:
        cards = (NvmlCards() if reader is None else reader).cards()
    except CardsUnreadable as error:
        if has_driver:
            fix = (
                "compare with nvidia-smi; after an upgrade of the driver, load its module again or restart the machine"
            )
            yield Finding("cards", BAD, f"there is a driver of NVIDIA, but its cards cannot be read: {error}", fix)
        else:
            fix = "cards that exist all the same are declared in the settings: `gpus` under [node]"
            yield Finding("cards", OK, f"no card of NVIDIA: {error}", fix)
        return
    models = Counter(card.model or "of an unknown model" for card in cards)
    listed = ", ".join(f"{count} x {model}" for model, count in models.items())
    yield Finding("cards", OK, f"{counted(len(cards), 'card')}{f': {listed}' if cards else ''}")
    for card in cards:
        if not card.healthy:
            fix = "look for XID errors of it in the kernel's log (dmesg), then reset it or restart the machine"
            yield Finding("cards", BAD, f"card {card.index} ({card.uuid}) does not work", fix)


def check_cgroups(proc: Path = Path("/proc")) -> Iterator[Finding]:
    """Check that the kernel can limit the memory and CPU of executors."""
    found = survey(proc)
    where = f" at {found.directory}" if found.directory is not None else ""
    if found.version == 0:
        fix = "executors are watched and ended when they exceed their memory; mount cgroups to have the kernel do it"
        yield Finding("cgroups", WARN, "the memory controller of cgroups is not there", fix)
    elif not found.writable:
        fix = "start the server by systemd with Delegate=yes, or in a container with its own writable cgroup"
        text = f"version {found.version}{where} cannot be written by this user: nothing limits memory but watching"
        yield Finding("cgroups", WARN, text, fix)
    elif found.crowded:
        fix = "start the server in a cgroup of its own, such as `systemd-run --user --scope -p Delegate=yes ullage up`"
        text = f"version {found.version}{where} has other processes, and so cannot be divided among executors"
        yield Finding("cgroups", WARN, text, fix)
    else:
        yield Finding(
            "cgroups", OK, f"version {found.version}{where}: the kernel limits {', '.join(found.controllers)}"
        )


def check_compiler() -> Iterator[Finding]:
    """Check whether the code that decides is compiled already."""
    from ullage.core.kernel import compiling  # noqa: PLC0415  # loads the compiler

    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        yield Finding(
            "compiler", WARN, "NUMBA_DISABLE_JIT is set: all decisions run uncompiled, and slower", "unset it"
        )
        return
    kernel = Path(compiling.__file__).parents[1]
    named = os.environ.get("NUMBA_CACHE_DIR")
    places = [Path(named)] if named else [kernel]
    if any(next(place.rglob("*.nbi"), None) is not None for place in places if place.is_dir()):
        yield Finding("compiler", OK, f"compiled code is cached in {places.pop()}")
        return
    text = "no compiled code is cached: a new server decides uncompiled for its first minutes, and compiles meanwhile"
    yield Finding("compiler", WARN, text, "`python -m ullage.bootstrap.warm` compiles now")
