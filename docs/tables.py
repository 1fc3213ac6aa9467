"""Writes the reference tables from the code: `python -m docs.tables`, or `make docs`.

A table stands between `<!-- table: NAME -->` and `<!-- end -->` in a file of docs/reference.
tests/docs/test_tables.py fails while one of them differs from the code.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec

import ullage
from docs.command_line import exit_codes, options, plugin, verbs
from docs.event_kinds import EVENTS
from docs.markdown import table
from docs.setting_variables import write_variables
from docs.vendors import vendors, write_chart_keys
from ullage.bootstrap import (
    kube_binding_settings,
    kube_card_settings,
    request_settings,
    settings,
    user_settings,
)
from ullage.client.allocations import Allocations
from ullage.client.client import Client
from ullage.client.mapping import MapOptions
from ullage.client.session import Session
from ullage.client.spec import SessionOptions
from ullage.core.placing.policy import Policy
from ullage.core.verdict.sentences import CURES, MEANINGS
from ullage.model import error, variables
from ullage.model.executor import TRANSITIONS, BindCode, ExecutorState
from ullage.model.node import NodeState
from ullage.model.rejection import Code
from ullage.model.session import SessionState
from ullage.model.task import TaskState
from ullage.server.app import FRONTS
from ullage.server.errors import status_of
from ullage.server.metrics import ServiceCollector
from ullage.server.routes import Endpoint, endpoints_of, kinds_of
from ullage.wire import (
    allocation,
    allocation_report,
    amount,
    catalog,
    consolidation,
    details,
    event,
    explanation,
    fair_share,
    gang,
    history,
    identity,
    load,
    node,
    node_topology,
    overview,
    preemption,
    requirement,
    schema,
    session,
    simulation,
)
from ullage.wire.schema import Schema, View

_BODY_MODULES = (
    requirement,
    session,
    catalog,
    schema,
    amount,
    node,
    details,
    explanation,
    event,
    overview,
    identity,
    node_topology,
    allocation,
    preemption,
    consolidation,
    gang,
    fair_share,
    history,
    load,
    simulation,
    allocation_report,
)
"""The modules with the bodies of the HTTP API, in the order of the reference."""

REFERENCE = Path(__file__).parent / "reference"
SOURCE = Path(ullage.__file__).parent

NODE_STATES = {
    NodeState.READY: "takes work",
    NodeState.UNKNOWN: "contact is lost; it may return",
    NodeState.NOT_READY: "it did not return in time; its executors are lost and their tasks wait again",
}
TASK_STATES = {
    TaskState.PENDING: "waits for an executor",
    TaskState.RUNNING: "was sent to an executor",
    TaskState.SUCCEED: "ended with code 0",
    TaskState.FAILED: "ended with another code, exceeded its time limit, or lost too many executors",
    TaskState.CANCELLED: "was cancelled",
}
SESSION_STATES = {
    SessionState.OPEN: "takes tasks and executors",
    SessionState.CLOSED: "takes no new tasks and never opens again; its results stay",
}
EXECUTOR_STATES = {
    ExecutorState.VOID: "placed and charged; its process is starting",
    ExecutorState.IDLE: "a process without a session",
    ExecutorState.BINDING: "entering a session",
    ExecutorState.BOUND: "runs tasks of its session",
    ExecutorState.UNBINDING: "leaving its session after the running task",
    ExecutorState.RELEASING: "ending; still charged",
    ExecutorState.RELEASED: "gone; not charged any more",
}


def write_tables() -> list[Path]:
    """Update every table; return the files that changed."""
    changed = []
    for path in sorted(REFERENCE.glob("*.md")):
        old = path.read_text()
        new = renew(old)
        if new != old:
            path.write_text(new)
            changed.append(path)
    return changed


def renew(text: str) -> str:
    """Return a reference page with its tables updated from the code."""

    def renewed(match: re.Match[str]) -> str:
        return f"<!-- table: {match[1]} -->\n\n{TABLES[match[1]]().strip()}\n\n<!-- end -->"

    return re.sub(r"<!-- table: ([a-z-]+) -->.*?<!-- end -->", renewed, text, flags=re.DOTALL)


def _doc(thing: object) -> str:
    """Return a docstring as paragraphs, without its section `Raises`."""
    text = (inspect.getdoc(thing) or "").partition("\nRaises:")[0].strip()
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _first(thing: object) -> str:
    return _doc(thing).partition("\n\n")[0]


def _signature(thing: Callable[..., object]) -> str:
    given = inspect.signature(thing)
    kept = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in given.parameters.values()]
    text = str(given.replace(parameters=kept, return_annotation=inspect.Signature.empty))
    return text.replace("self, ", "").replace("(self)", "()").replace("<UNSET>", "UNSET").replace("/, ", "")


# --- reasons, states, events, metrics ---


def reasons() -> str:
    """Return the codes of `why`, with their meanings and cures."""
    rows = ((f"`{code}`", MEANINGS[code], f"`{CURES[code]}`" if code in CURES else "-") for code in Code)
    return table(("code", "meaning", "cure"), rows)


def _states(meanings: dict[Any, str], kind: Iterable[object]) -> str:
    return table(("state", "meaning"), ((f"`{state}`", meanings[state]) for state in kind))


def transitions() -> str:
    """Return the state transitions of an executor."""
    rows = ((f"`{state}`", f"`{operation}`", f"`{after}`") for (state, operation), after in TRANSITIONS.items())
    return table(("state", "operation", "next state"), rows)


def bind_codes() -> str:
    """Return the results of a bind."""
    return table(("code", "meaning"), ((code.value, code.name.lower().replace("_", " ")) for code in BindCode))


def _trees(under: str) -> Iterator[ast.AST]:
    for path in sorted((SOURCE / under).rglob("*.py")):
        yield from ast.walk(ast.parse(path.read_text()))


def event_kinds() -> set[str]:
    """Return the kinds of events that the service records."""
    return {
        node.value
        for call in _trees("service")
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "add" and call.args
        for node in ast.walk(call.args[0])
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value
    }


def events() -> str:
    """Return the kinds of events and their meanings."""
    return table(("kind", "meaning"), ((f"`{kind}`", EVENTS[kind]) for kind in sorted(event_kinds())))


def metrics() -> str:
    """Return names, types and labels, from one scrape of an empty service."""
    amounts = SimpleNamespace(cpu_milli=0, memory_bytes=0, gpu_milli=0)
    record = SimpleNamespace(counts=dict.fromkeys(TaskState, 0), open=True, waiting_for=Code.CPU)
    service = SimpleNamespace(
        loop=SimpleNamespace(cycles=0),
        state=SimpleNamespace(sessions={"": record}),
        events=SimpleNamespace(counts=Counter()),
        allocations=SimpleNamespace(refused={Code.GPU: 0}, adjusted={"up": 0}, all=list),
        observations=SimpleNamespace(unconfirmed=list, foreign=lambda: [SimpleNamespace(node="", gpus=())]),
    )
    snapshot = SimpleNamespace(
        queues=lambda: [SimpleNamespace(name="", share=0.0, pending=0)],
        nodes=lambda: [SimpleNamespace(name="", allocatable=amounts, held=amounts)],
        gpus=lambda: [
            SimpleNamespace(
                node="",
                index=0,
                uuid="",
                compute_gflops=None,
                vram_bytes=None,
                free=SimpleNamespace(fraction=1.0, compute_gflops=None, vram_bytes=None),
            )
        ],
    )
    answers = SimpleNamespace(
        snapshot=lambda: snapshot,
        room=lambda: SimpleNamespace(
            models=[SimpleNamespace(model="", idle_milli=0, fragments_milli=0)], fits={1: 0}, tasks=0
        ),
    )
    rows = [
        (
            f"`{family.samples[0].name}`",
            family.type,
            ", ".join(f"`{label}`" for label in family.samples[0].labels) or "-",
            family.documentation,
        )
        for family in ServiceCollector(cast("Any", service), cast("Any", answers)).collect()
    ]
    return table(("name", "type", "labels", "meaning"), rows)


# --- settings ---


def settings_() -> str:
    """Return the sections of the settings file, with keys, types and defaults."""
    kinds = (
        ("server", settings.ServerSection),
        ("node", settings.NodeSection),
        ("[node.card]", settings.CardSection),
        ("policy", settings.PolicySection),
        ("topology", settings.TopologySection),
        ("[topology.provider]", settings.ProviderSection),
        ("requests", request_settings.RequestsSection),
        ("requests.weights", request_settings.WeightsSection),
        ("requests.oversubscription", request_settings.OversubscriptionSection),
        ("[requests.budget]", request_settings.BudgetSection),
        ("requests.pools.NAME", request_settings.PoolSection),
        ("queues.NAME", settings.QueueSection),
        ("users", user_settings.UsersSection),
        ("users.queues.NAME", user_settings.QueueUsersSection),
        ("history", settings.HistorySection),
        ("fair_share", settings.FairShareSection),
        ("kube", settings.KubeSection),
        ("kube.bindings", kube_binding_settings.BindingsSection),
        ("kube.bindings.quotas.OWNER", kube_binding_settings.OwnerQuotaSection),
        ("kube.bindings.quotas.OWNER.models.MODEL", kube_binding_settings.CardQuotaSection),
        ("kube.bindings.quotas.OWNER.apps.APPLICATION", kube_binding_settings.AppQuotaSection),
        ("[kube.card_driver]", kube_card_settings.CardDriverSection),
        ("[kube.card_model]", kube_card_settings.CardModelSection),
        ("[kube.card_pool]", kube_card_settings.CardPoolSection),
    )
    top = [field for field in msgspec.structs.fields(settings.Settings) if not _is_section(field)]
    text = ["### Top of the file", _doc(settings.Settings), _fields(settings.Settings, {field.name for field in top})]
    for name, kind in kinds:
        text += [f"### `[{name}]`", _doc(kind), _fields(kind)]
    return "\n\n".join(text)


def _is_section(field: msgspec.structs.FieldInfo) -> bool:
    return isinstance(field.default, msgspec.Struct) or field.name in {"requests_", "queues"}


def environment() -> str:
    """Return the environment variables that a user may set."""
    return table(("variable", "meaning"), ((f"`{name}`", meaning) for name, meaning in variables.SETTINGS.items()))


def policy() -> str:
    """Return the rules of the cycle and their meanings."""
    return _doc(Policy)


def _fields(kind: type[msgspec.Struct], only: set[str] | None = None) -> str:
    types = {
        name: text for base in reversed(kind.__mro__) for name, text in vars(base).get("__annotations__", {}).items()
    }
    rows = (
        (f"`{field.encode_name}`", f"`{_type(types[field.name])}`", _default(field))
        for field in msgspec.structs.fields(kind)
        if only is None or field.name in only
    )
    return table(("key", "type", "default"), rows)


def _type(text: str) -> str:
    return text.replace("msgspec.UnsetType | ", "").replace(" | msgspec.UnsetType", "")


def _default(field: Any) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return f"`{field.default_factory()!r}`"
    if field.default is msgspec.NODEFAULT:
        return "required"
    if field.default is msgspec.UNSET or field.default is None:
        return "-"
    if isinstance(field.default, msgspec.Struct):
        return "`{}`"
    return f"`{msgspec.json.encode(field.default).decode()}`"


# --- the HTTP API ---


def routes() -> str:
    """Return every endpoint under /v1."""
    rows = [
        (
            f"`{endpoint.method} {endpoint.path}`",
            endpoint.summary,
            _access(endpoint),
            ", ".join(f"`{name}`" for name in endpoint.query) or "-",
            _schema(endpoint.body),
            "stream" if endpoint.raw else ", ".join(f"{status} {_schema(kind)}" for status, kind in _answers(endpoint)),
        )
        for endpoint in endpoints_of(*FRONTS)
    ]
    return table(("route", "does", "role", "query", "body", "answer"), rows)


_WHOSE = {"all": "", "own": ", own", "shown": ", shown"}


def _access(endpoint: Endpoint) -> str:
    return f"{endpoint.access.role}{_WHOSE[endpoint.access.of]}"


def _answers(endpoint: Endpoint) -> Iterator[tuple[int, Any]]:
    yield endpoint.status if endpoint.answer else 204, endpoint.answer
    yield from endpoint.others


def _schema(kind: Any) -> str:
    if kind is None:
        return "-"
    if type(None) in kinds_of(kind):
        return f"{_schema(kinds_of(kind)[0])}, or none"
    shown = getattr(kind, "__args__", [kind])[0]
    name = shown.__name__
    link = f"[{name}](#{name.lower()})" if issubclass(shown, msgspec.Struct) else f"`{name}`"
    return f"list of {link}" if getattr(kind, "__args__", None) else link


def bodies() -> str:
    """Return every schema of the API."""
    kinds = [
        kind
        for module in _BODY_MODULES
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__
    ]
    named = [kind for kind in kinds if kind not in (Schema, View) and not kind.__name__.startswith("_")]
    return "\n\n".join(f"### {kind.__name__}\n\n{_doc(kind)}\n\n{_fields(kind)}" for kind in named)


def errors() -> str:
    """Return the codes of errors with their HTTP status."""
    kinds = {
        name: kind
        for name, kind in vars(error).items()
        if isinstance(kind, type) and issubclass(kind, error.UllageError) and kind is not error.UllageError
    }
    found = {(kind.code, name) for name, kind in kinds.items()}
    for call in (call for layer in ("model", "core", "service", "storage", "server") for call in _trees(layer)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in kinds:
            found |= {
                (str(keyword.value.value), call.func.id)
                for keyword in call.keywords
                if keyword.arg == "code" and isinstance(keyword.value, ast.Constant)
            }
    order = sorted(found, key=lambda pair: (status_of(kinds[pair[1]]("")), pair))
    rows = ((f"`{code}`", f"`{kind}`", status_of(kinds[kind](""))) for code, kind in order)
    return table(("code", "exception", "status"), rows)


# --- Python ---


def names() -> str:
    """Return the names of the package `ullage`."""
    kept = [name for name in ullage.__all__ if name != "__version__"]
    return table(("name", "is"), ((f"`ullage.{name}`", _first(getattr(ullage, name))) for name in kept))


def _methods(kind: type) -> str:
    rows = [
        (f"`{name}{_signature(function)}`", _first(function))
        for base in kind.__mro__
        for name, function in vars(base).items()
        if inspect.isfunction(function) and not name.startswith("_")
    ]
    return table(("method", "does"), rows)


def _options(kind: type) -> str:
    """Return the docstring and the options of a function."""
    return f"{_doc(kind)}\n\n" + table(
        ("option", "type"), ((f"`{name}`", f"`{text}`") for name, text in _option_types(kind))
    )


def _option_types(of: type) -> Iterator[tuple[str, str]]:
    for name, kind in of.__annotations__.items():
        yield name, kind.__forward_arg__ if hasattr(kind, "__forward_arg__") else str(kind)


TABLES: dict[str, Callable[[], str]] = {
    "reasons": reasons,
    "task-states": lambda: _states(TASK_STATES, TaskState),
    "session-states": lambda: _states(SESSION_STATES, SessionState),
    "executor-states": lambda: _states(EXECUTOR_STATES, ExecutorState),
    "node-states": lambda: _states(NODE_STATES, NodeState),
    "transitions": transitions,
    "bind-codes": bind_codes,
    "events": events,
    "metrics": metrics,
    "settings": settings_,
    "environment": environment,
    "policy": policy,
    "verbs": verbs,
    "options": options,
    "plugin": plugin,
    "exit-codes": exit_codes,
    "routes": routes,
    "bodies": bodies,
    "errors": errors,
    "names": names,
    "client": lambda: _methods(Client),
    "allocations": lambda: _methods(Allocations),
    "session": lambda: _methods(Session),
    "session-options": lambda: _options(SessionOptions),
    "map-options": lambda: _options(MapOptions),
    "vendors": vendors,
}


if __name__ == "__main__":
    write_tables()
    write_chart_keys()
    write_variables()
