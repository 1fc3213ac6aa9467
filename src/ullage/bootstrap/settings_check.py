"""Settings as a start reads them: what stops it, and warnings of what this machine cannot satisfy."""

from __future__ import annotations

import grp
import pwd
from collections.abc import Callable, Iterable, Iterator, Mapping

from ullage.bootstrap.settings import Settings
from ullage.bootstrap.strategies import installed_strategies, load_strategies
from ullage.inventory.facts import absent
from ullage.inventory.machine import MachineSettings, discover
from ullage.inventory.nvml import NvmlCards
from ullage.model.guarantees import distinct, unmet_guarantees
from ullage.model.nearest import did_you_mean
from ullage.model.node import Node
from ullage.model.quantity import format_bytes
from ullage.model.queue_name import DEFAULT_QUEUE, ROOT
from ullage.model.resources import DIMENSIONS, Resources, show_milli


def check_start(settings: Settings) -> None:
    """Read all sections as a start does.

    Raises:
        InvalidRequest: a value is wrong.

    """
    settings.server.check()
    settings.history.keeping()
    settings.machine(settings.sharing())
    settings.service()


def check_here(settings: Settings, environment: Mapping[str, str]) -> list[str]:
    """Read all sections as a start on this machine does. Return a sentence for each that it cannot satisfy.

    Raises:
        InvalidRequest: a value is wrong.
        Unavailable: the machine cannot be read.

    """
    if installed_strategies():
        load_strategies()
    check_start(settings)
    machine = settings.machine(settings.sharing())
    return unsatisfiable(settings, machine, discover(machine, environment, NvmlCards()).node)


def unsatisfiable(settings: Settings, machine: MachineSettings, node: Node) -> list[str]:
    """Return one sentence for each setting that this machine cannot satisfy.

    They are no errors: a server must start in spite of a failed card or a smaller container.
    """
    return list(_sentences(settings, machine, node))


def _sentences(settings: Settings, machine: MachineSettings, node: Node) -> Iterator[str]:
    for name, left, most in zip(DIMENSIONS, node.allocatable, node.capacity, strict=True):
        if most and not left:
            yield f"node.reserved: all {name} of this machine ({_shown(name, most)}) is reserved: no work can run"
    requirement = settings.default_requirement()
    if requirement is not None:
        for name, asked, there in _above(requirement.resources, node.allocatable):
            yield f"resreq: {name} {asked} is more than this machine has for work ({there}): sessions need their own"
    yield from distinct(unmet_guarantees(settings.share_tree(), node.allocatable))
    for card in absent(node.gpus, machine.facts):
        yield f"node.card: the settings describe {card}, but this machine has no such card"
    yield from _unknown_queues(settings)
    yield from _absent_people(settings)


def _unknown_queues(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each closed queue that the settings do not make; `ullage queues set` may have made it."""
    known = {ROOT, DEFAULT_QUEUE, *settings.queues}
    for name in sorted(set(settings.users.queues) - known):
        meant = did_you_mean(name, sorted(known))
        makes = "it closes one only if `ullage queues set` makes it"
        yield f"users.queues.{name}: {meant}[queues] has no queue {name}: {makes}"


def _absent_people(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each local user and group that the settings name and this machine does not have.

    A token may name a user without an account, but its role is its own, and nothing runs as it.
    """
    users = settings.users
    yield from _absent("users.roles", users.roles, pwd.getpwnam, "user")
    yield from _absent("users.groups", users.groups, grp.getgrnam, "group")
    for name, entry in users.queues.items():
        yield from _absent(f"users.queues.{name}.groups", entry.groups, grp.getgrnam, "group")
        if users.run_as == "owner":
            yield from _absent(f"users.queues.{name}.users", entry.users, pwd.getpwnam, "user")


def _absent(field: str, names: Iterable[str], find: Callable[[str], object], kind: str) -> Iterator[str]:
    for name in names:
        try:
            find(name)
        except KeyError:
            yield f"{field}: this machine has no {kind} {name}"


def _above(asked: Resources, there: Resources) -> Iterator[tuple[str, str, str]]:
    for name, amount, most in zip(DIMENSIONS, asked, there, strict=True):
        if amount > most:
            yield name, _shown(name, amount), _shown(name, most)


def _shown(name: str, amount: int) -> str:
    return format_bytes(amount) if name == "memory" else show_milli(amount)
