"""The server's settings: one TOML file, read once; unknown keys and bad values stop the start."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec

from ullage.core.policy import Order, Policy
from ullage.inventory.machine import MachineSettings
from ullage.model.error import InvalidRequest, invalid
from ullage.model.node import MAX_EXECUTORS
from ullage.model.quantity import parse_bytes
from ullage.model.queue import ROOT, Queue, parse_queue
from ullage.model.request import ResourceRequirement
from ullage.model.resources import MILLI, Resources

PREFERRED_PORT = 7480
"""Taken when no port is named and it is free; else any free one."""


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ServerSection(_Section, frozen=True, kw_only=True):
    """Where the server listens, and where it keeps its state (a path, `sqlite:///path` or `memory://`).

    Without a port it takes 7480, or any other if that one is in use; 0 is any free one.
    """

    host: str = "127.0.0.1"
    port: int | None = None
    storage: str | None = None


class NodeSection(_Section, frozen=True, kw_only=True):
    """What this machine offers; everything left out is found out.

    `gpus` is a count or a list of ids and overrides detection; `reserved` is kept from work.
    """

    name: str | None = None
    gpus: int | list[str] | None = None
    cpu: int | None = None
    memory: str | None = None
    reserved: str | None = None
    max_executors: int = MAX_EXECUTORS
    labels: dict[str, str] = {}


class PolicySection(_Section, frozen=True, kw_only=True):
    """Rules of the cycle; see the reference of `Policy`. `reclaim_grace_s` below 0 never ends a task."""

    order: str = Order.DRF.value
    strategy: str = "best-fit"
    reclaim_grace_s: float = 30.0
    min_runtime_s: float = 0.0
    reserve_after_s: float = 300.0


class QueueSection(_Section, frozen=True, kw_only=True):
    """A queue; guarantee and limit are requirement texts."""

    parent: str = ROOT
    weight: int = 1
    guarantee: str | None = None
    limit: str | None = None


class Settings(_Section, frozen=True, kw_only=True):
    """The whole file. `resreq` is what a session gets that asks for nothing."""

    server: ServerSection = ServerSection()
    node: NodeSection = NodeSection()
    policy: PolicySection = PolicySection()
    queues: dict[str, QueueSection] = {}
    resreq: str | None = None

    def machine(self) -> MachineSettings:
        """Settings of this machine as a node."""
        node = self.node
        reserved = ResourceRequirement.from_string(node.reserved).resources if node.reserved else Resources()
        return MachineSettings(
            name=node.name,
            gpus=tuple(node.gpus) if isinstance(node.gpus, list) else node.gpus,
            cpu_milli=None if node.cpu is None else node.cpu * MILLI,
            memory_bytes=None if node.memory is None else parse_bytes(node.memory, "node.memory"),
            reserved=reserved,
            max_executors=node.max_executors,
            labels=node.labels,
        )

    def rules(self) -> Policy:
        """The policy of the cycle."""
        section = self.policy
        if section.order not in {order.value for order in Order}:
            raise invalid("policy.order", section.order, f"use one of {', '.join(order.value for order in Order)}")
        grace = section.reclaim_grace_s
        return Policy(
            order=Order(section.order),
            strategy=section.strategy,
            reclaim_grace_s=None if grace < 0 else grace,
            min_runtime_s=section.min_runtime_s,
            reserve_after_s=section.reserve_after_s,
        )

    def share_tree(self) -> tuple[Queue, ...]:
        """The configured queues."""
        return tuple(
            parse_queue(name, queue.parent, queue.weight, queue.guarantee, queue.limit)
            for name, queue in self.queues.items()
        )

    def default_requirement(self) -> ResourceRequirement | None:
        """What a session gets that asks for nothing, if the operator says so."""
        if self.resreq is None:
            return None
        try:
            return ResourceRequirement.from_string(self.resreq)
        except InvalidRequest as error:
            raise InvalidRequest(f"settings: resreq: {error.message}", field="resreq") from None


def read_settings(path: Path | None) -> Settings:
    """The settings in a file; the defaults if there is none.

    Raises:
        InvalidRequest: the file cannot be read, or a key or value is not known.

    """
    if path is None:
        return Settings()
    try:
        found = tomllib.loads(path.read_text())
    except OSError as error:
        raise InvalidRequest(f"settings: {path} cannot be read: {error.strerror}", field="config") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"settings: {path} is not valid TOML: {error}", field="config") from None
    try:
        return msgspec.convert(found, Settings)
    except msgspec.ValidationError as error:
        text = re.sub(r"`\$\.?(.*?)`", r"`\1`", str(error))
        raise InvalidRequest(f"settings: {path}: {text}", field="config") from None
