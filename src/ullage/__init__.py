"""Ullage places work on GPUs: fairly, tightly, close together, and says why."""

__version__ = "0.1.0"

# `import ullage` costs nothing: each name is imported when it is first used. The constant has the name
# that type checkers know, without the 20 ms that importing `typing` for it takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from ullage.client.async_client import AsyncClient, aconnect
    from ullage.client.async_future import AsyncTaskFuture
    from ullage.client.async_session import AsyncSession
    from ullage.client.client import Client, connect
    from ullage.client.executor import Executor
    from ullage.client.future import TaskFuture
    from ullage.client.joblib_backend import register_joblib
    from ullage.client.session import Session
    from ullage.model.error import (
        AlreadyExists,
        Conflict,
        DiskFull,
        InvalidRequest,
        NotFound,
        UllageError,
        Unavailable,
        Unplaceable,
    )
    from ullage.model.request import ResourceRequirement
    from ullage.worker.context import context
    from ullage.worker.service import TaskFailed

_HOME = {
    "AlreadyExists": "ullage.model.error",
    "AsyncClient": "ullage.client.async_client",
    "AsyncSession": "ullage.client.async_session",
    "AsyncTaskFuture": "ullage.client.async_future",
    "Client": "ullage.client.client",
    "Conflict": "ullage.model.error",
    "DiskFull": "ullage.model.error",
    "Executor": "ullage.client.executor",
    "InvalidRequest": "ullage.model.error",
    "NotFound": "ullage.model.error",
    "ResourceRequirement": "ullage.model.request",
    "Session": "ullage.client.session",
    "TaskFailed": "ullage.worker.service",
    "TaskFuture": "ullage.client.future",
    "UllageError": "ullage.model.error",
    "Unavailable": "ullage.model.error",
    "Unplaceable": "ullage.model.error",
    "aconnect": "ullage.client.async_client",
    "connect": "ullage.client.client",
    "context": "ullage.worker.context",
    "register_joblib": "ullage.client.joblib_backend",
}
"""The module that each exported name comes from."""

__all__ = [
    "AlreadyExists",
    "AsyncClient",
    "AsyncSession",
    "AsyncTaskFuture",
    "Client",
    "Conflict",
    "DiskFull",
    "Executor",
    "InvalidRequest",
    "NotFound",
    "ResourceRequirement",
    "Session",
    "TaskFailed",
    "TaskFuture",
    "UllageError",
    "Unavailable",
    "Unplaceable",
    "__version__",
    "aconnect",
    "connect",
    "context",
    "register_joblib",
]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  # `import ullage` itself stays quick

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
