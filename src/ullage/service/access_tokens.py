"""Tokens of users: created, listed, revoked. The store has their digests, never their secrets."""

from __future__ import annotations

import hashlib
import re
import secrets

from ullage.model.error import NotFound, invalid
from ullage.model.identity import MAX_USER, OF_LINK, AccessToken, Role
from ullage.service.context import ServiceContext
from ullage.service.journal import Callback, in_one_write
from ullage.service.store_port import Drop, PutToken, Snapshot

PREFIX = "ullage_"
"""The beginning of each token, by which a search finds one that was published by mistake."""

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*\$?")
_SECRET_BYTES = 32

LINK_S = 12 * 3600.0
"""Seconds for which the token of a link to the page is valid."""

MAX_LINKS = 8
"""The most valid links of one user: a further one ends the oldest."""


def digest_of(secret: str) -> str:
    """Return the digest of a token or a page key. Secrets are random, so that no slow hash is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def page_key(token: str) -> str:
    """Return the key of the page: derived from the token, so that it cannot replace it."""
    return hashlib.sha256(b"ullage page " + token.encode()).hexdigest()


def check_user(user: str) -> str:
    """Return the name of a user.

    Raises:
        InvalidRequest: it is no name that a user can have.

    """
    if not _USER.fullmatch(user) or len(user) > MAX_USER:
        raise invalid("user", user, f"write a user name: letters, digits and ._@-, at most {MAX_USER}")
    return user


class AccessTokens:
    """Use cases of tokens. The token in the server's file is not one of them: it is always valid."""

    def __init__(self, context: ServiceContext) -> None:
        self._journal, self._clock, self._events = context.journal, context.clock, context.events
        self._tokens: dict[str, AccessToken] = {}
        self._by_digest: dict[str, AccessToken] = {}
        self._by_page: dict[str, AccessToken] = {}

    def recover(self, snapshot: Snapshot) -> None:
        """Restore the stored tokens after a restart."""
        for token in snapshot.tokens:
            self._put(token)

    @in_one_write
    def create(
        self, user: str, role: Role, expires_s: float | None, by: str, done: Callback
    ) -> tuple[AccessToken, str]:
        """Return a new token and its secret, which is not stored. It ends after `expires_s` seconds.

        Raises:
            InvalidRequest: the name of the user is not valid, or the time is not positive.

        """
        check_user(user)
        if expires_s is not None and not expires_s > 0:
            raise invalid("expires_s", expires_s, "more than 0 seconds is needed; omit it for a token without an end")
        now, secret = self._clock(), f"{PREFIX}{secrets.token_urlsafe(_SECRET_BYTES)}"
        token = AccessToken(
            id=self._new_id(),
            user=user,
            role=role,
            digest=digest_of(secret),
            page_digest=digest_of(page_key(secret)),
            created_at=now,
            expires_at=None if expires_s is None else now + expires_s,
            created_by=by,
        )
        self._put(token)
        self._journal.write(PutToken(token), then=done)
        self._events.add("token.created", message=f"{role} {user}, by {by}", token=token.id)
        return token, secret

    @in_one_write
    def create_link(self, user: str, role: Role, done: Callback) -> tuple[AccessToken, str]:
        """Return a token for the link of a local user to the page, and its secret. Expired ones of the user go."""
        links = [token for token in self.all() if token.user == user and token.created_by == OF_LINK]
        expired = [token for token in links if self.is_expired(token)]
        valid = [token for token in links if not self.is_expired(token)]
        for token in (*expired, *valid[: -(MAX_LINKS - 1)]):
            self._end(token, OF_LINK)
        return self.create(user, role, LINK_S, by=OF_LINK, done=done)

    @in_one_write
    def revoke(self, token_id: str, by: str, done: Callback) -> None:
        """End a token now.

        Raises:
            NotFound: there is no such token.

        """
        token = self._tokens.get(token_id)
        if token is None:
            raise NotFound(f"token {token_id} does not exist; `ullage token list` shows all", field="token")
        self._end(token, by, done)

    def all(self) -> tuple[AccessToken, ...]:
        """Return all tokens, expired ones too, the oldest first."""
        return tuple(sorted(self._tokens.values(), key=lambda token: (token.created_at, token.id)))

    def of_secret(self, secret: str) -> AccessToken | None:
        """Return the token with this secret, which may be expired."""
        return self._by_digest.get(digest_of(secret))

    def of_page_key(self, key: str) -> AccessToken | None:
        """Return the token with this page key, which may be expired."""
        return self._by_page.get(digest_of(key))

    def is_expired(self, token: AccessToken) -> bool:
        """Return whether a token has ended by now."""
        return token.expires_at is not None and self._clock() >= token.expires_at

    def _put(self, token: AccessToken) -> None:
        self._tokens[token.id] = self._by_digest[token.digest] = self._by_page[token.page_digest] = token

    def _end(self, token: AccessToken, by: str, done: Callback | None = None) -> None:
        del self._tokens[token.id], self._by_digest[token.digest], self._by_page[token.page_digest]
        self._journal.write(Drop(PutToken, token.id), then=done)
        self._events.add("token.revoked", message=f"{token.role} {token.user}, by {by}", token=token.id)

    def _new_id(self) -> str:
        while (found := secrets.token_hex(4)) in self._tokens:
            pass
        return found
