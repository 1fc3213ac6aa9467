"""Refusals of a Kubernetes API server, as errors of Ullage. The type decides how to react."""

from __future__ import annotations

from http import HTTPStatus

from ullage.kube.client.objects import Status
from ullage.model.error import AlreadyExists, Conflict, InvalidRequest, NotFound, UllageError, Unavailable


class ApiGone(UllageError):
    """The version or the continue token has expired: list again."""

    code = "kube-gone"


class VersionConflict(Conflict):
    """The object changed, or was replaced, since it was read: read it again and decide again."""

    code = "kube-conflict"


class ApiForbidden(UllageError):
    """The server does not allow this user the call: an RBAC rule is missing, or the token is wrong."""

    code = "kube-forbidden"


class Throttled(Unavailable):
    """The server asks to retry later: after `retry_after_s` seconds."""

    code = "kube-throttled"

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class BudgetExhausted(Throttled):
    """A PodDisruptionBudget does not allow an eviction now."""

    code = "kube-budget-exhausted"


class Unreachable(Unavailable):
    """No response came. A write may have taken effect or not, so read before you retry."""

    code = "kube-unreachable"


def is_refusal(error: BaseException) -> bool:
    """Return whether a write with this error did not and cannot take effect. All other outcomes are unknown."""
    return isinstance(error, UllageError) and (isinstance(error, Throttled) or not isinstance(error, Unavailable))


_PLAIN: dict[int, type[UllageError]] = {401: ApiForbidden, 403: ApiForbidden, 409: VersionConflict, 410: ApiGone}


def refusal(status: Status, what: str, retry_after_s: float = 1.0) -> UllageError:
    """Return the error for a failed response. `what` is the call, `status.code` the HTTP status."""
    message = f"{what}: {status.message or status.reason or status.code}"
    if status.code == HTTPStatus.TOO_MANY_REQUESTS:
        return Throttled(message, retry_after_s)
    if status.reason == "AlreadyExists":
        return AlreadyExists(message, code="kube-already-exists")
    if status.code == HTTPStatus.NOT_FOUND:
        return NotFound(message, code="kube-not-found")
    if status.code in _PLAIN:
        return _PLAIN[status.code](message)
    if status.code in range(400, 500) and status.code != HTTPStatus.REQUEST_TIMEOUT:
        return InvalidRequest(message, code="kube-invalid")
    return Unavailable(message, code="kube-unavailable")
