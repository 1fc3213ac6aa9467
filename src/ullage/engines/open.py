"""From the name of an engine in the settings to the engine.

`local` is built in. Other distributions offer an engine as an entry point of the group `ullage.engines`: its name is
that of the setting, and it refers to a function that takes an `EngineContext` and returns a `HostedEngine`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from ullage.engines.local.engine import LocalEngine
from ullage.engines.local.sharing import Sharing
from ullage.model.error import InvalidRequest, UllageError, invalid
from ullage.model.node import Node
from ullage.service.engine_port import HostedEngine

GROUP = "ullage.engines"
LOCAL = "local"


@dataclass(frozen=True, slots=True)
class EngineContext:
    """What an engine starts with: the directory of the server, its machine, and who holds workers to parts of cards.

    `server_id` is another one at each start. With `clients`, the directory where clients of all users find the server,
    each executor runs as the `user` of its order.
    """

    home: Path
    node: Node
    server_id: str
    sharing: Sharing
    clients: Path | None = None


def open_engine(name: str, context: EngineContext) -> HostedEngine:
    """Return the engine of this name, which is not open yet.

    Raises:
        InvalidRequest: no engine has this name, or the engine of another distribution cannot be created.

    """
    entry = find_engine(name)
    if entry is None:
        return _local(context)
    where = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown distribution"
    return _create(f"engine {name} of {where} ({entry.value})", entry.load, context)


def find_engine(name: str, field: str = "engine") -> EntryPoint | None:
    """Return where the engine of this name is installed; None for the built-in one.

    Raises:
        InvalidRequest: no engine has this name.

    """
    if name == LOCAL:
        return None
    installed = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in installed:
        known = ", ".join(sorted({LOCAL, *installed}))
        raise invalid(field, name, f"choose one of {known}, or install a package with an entry point of {GROUP}")
    return installed[name]


def _local(context: EngineContext) -> HostedEngine:
    return LocalEngine(context.home, context.node, context.server_id, sharing=context.sharing, clients=context.clients)


def _create(label: str, load: Callable[[], Any], context: EngineContext) -> HostedEngine:
    try:
        engine = load()(context)
    except Exception as error:
        reason = error.message if isinstance(error, UllageError) else f"{type(error).__name__}: {error}"
        raise InvalidRequest(f"{label} cannot be used: {reason}", code="engine-broken", field="engine") from error
    missing = [part for part in _parts() if not hasattr(engine, part)]
    if missing:
        text = f"{label} cannot be used: {type(engine).__name__} has no {', '.join(missing)}"
        raise InvalidRequest(text, code="engine-broken", field="engine")
    hosted: HostedEngine = engine
    return hosted


def _parts() -> list[str]:
    return sorted(part for kind in HostedEngine.__mro__ for part in vars(kind) if not part.startswith("_"))
