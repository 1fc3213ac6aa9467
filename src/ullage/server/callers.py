"""Who asks, by the proof that a request carries: a token, a key of the page, or the socket of this machine."""

from __future__ import annotations

import hmac
import os
import re
from dataclasses import replace
from typing import NamedTuple

from starlette.requests import HTTPConnection

from ullage.model.identity import OF_LINK, AccessToken, Identity, Role
from ullage.service.access_tokens import page_key
from ullage.service.service import UllageService

PEER = "ullage.peer"
"""A key of the ASGI scope: the user id of the process at the other end of a Unix socket, by the kernel."""

_READING = frozenset({"GET", "HEAD"})
_ROOT = 0


class NotAdmitted(NamedTuple):
    """Why a caller is not let in: the HTTP status, the code and the message."""

    status: int
    code: str
    message: str


class Callers:
    """Identifies callers.

    Root, the user of the server, and everyone with the token of its file are administrators. Other users of this
    machine have the role of the rules, others the role of their token.
    """

    def __init__(self, token: str, service: UllageService) -> None:
        self._token, self._page_key = token, page_key(token)
        self._rules, self._tokens, self._system_users = service.access, service.tokens, service.system_users

    def identify(self, request: HTTPConnection) -> Identity | NotAdmitted:
        """Return who asks, or why nobody is known to ask."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        peer: int | None = request.scope.get(PEER)
        if "authorization" not in request.headers:
            return self._of_peer(peer)
        if scheme.lower() == "bearer":
            if hmac.compare_digest(given.encode(), self._token.encode()):
                return self._of_file(peer)
            found = self._tokens.of_secret(given)
            if found is not None and not self._rules.plain_tokens and _is_readable_by_others(request):
                return _PLAIN
            return _UNKNOWN if found is None else self._of_token(found)
        if scheme.lower() == "page" and request.scope["method"] in _READING:
            return self._of_page(given)
        return _UNKNOWN

    def _of_file(self, peer: int | None) -> Identity:
        name = self._name(os.geteuid() if peer is None else peer)
        return Identity(name, Role.ADMIN, "token file", nameless=peer is None)

    def _of_page(self, key: str) -> Identity | NotAdmitted:
        if hmac.compare_digest(key.encode(), self._page_key.encode()):
            return replace(self._of_file(None), reading=True)
        found = self._tokens.of_page_key(key)
        identity = _UNKNOWN if found is None else self._of_token(found)
        return replace(identity, reading=True) if isinstance(identity, Identity) else identity

    def _of_token(self, token: AccessToken) -> Identity | NotAdmitted:
        if self._tokens.is_expired(token):
            if token.created_by == OF_LINK:
                text = f"the link of {token.user} has expired; `ullage page` prints a new one"
                return NotAdmitted(401, "token-expired", text)
            text = f"the token {token.id} of {token.user} has expired; ask an administrator for a new one"
            return NotAdmitted(401, "token-expired", f"{text} (`ullage token create --user {token.user}`)")
        if token.created_by != OF_LINK:
            return Identity(token.user, token.role, "token", expires_at=token.expires_at)
        account = self._system_users.by_name(token.user)
        identity = self._of_local(token.user, None if account is None else account.uid)
        if not isinstance(identity, Identity):
            return identity
        return replace(identity, proof="token", expires_at=token.expires_at)

    def _of_peer(self, peer: int | None) -> Identity | NotAdmitted:
        if peer is None:
            return _MISSING
        return self._of_local(self._name(peer), peer)

    def _of_local(self, name: str, uid: int | None) -> Identity | NotAdmitted:
        """Return a user of this machine with the role that it has now; None is the id of one who is gone."""
        if uid in (_ROOT, os.geteuid()):
            return Identity(name, Role.ADMIN, "socket")
        role = self._rules.role_of(name, self._system_users.groups_of(name))
        if role is None:
            fix = "the settings users.roles, users.groups and users.default give roles"
            return NotAdmitted(403, "no-role", f"you are {name}, who has no role on this server; {fix}")
        return Identity(name, role, "socket")

    def _name(self, uid: int) -> str:
        account = self._system_users.by_uid(uid)
        return str(uid) if account is None else account.name


def _is_readable_by_others(request: HTTPConnection) -> bool:
    """Return whether a request came without TLS at an address that other machines reach."""
    host, _ = request.scope.get("server") or ("", None)
    return request.scope["scheme"] == "http" and request.scope.get(PEER) is None and not _LOOPBACK.fullmatch(host)


_LOOPBACK = re.compile(r"localhost|127(\.\d{1,3}){3}|::1|")
_PLAIN = NotAdmitted(
    403,
    "plain-http",
    "a token came in plain text, which others can read, and is not accepted: use https (the settings server.cert and "
    "server.key), or set users.plain_tokens; revoke this token if others may have read it",
)
_UNKNOWN = NotAdmitted(401, "unauthorized", "this server knows no such token: it was revoked, or is of another server")
_MISSING = NotAdmitted(
    401, "unauthorized", "a token is needed: send `Authorization: Bearer TOKEN` (see the server's token file)"
)
