"""Bodies of users and their tokens."""

from __future__ import annotations

from ullage.wire.schema import Schema, View


class MeBody(View, frozen=True, kw_only=True):
    """The caller: its user, its role, and the ids of the routes that it `may` use (`operationId` of the OpenAPI).

    `proof` is `socket` (the kernel named the user), `token`, or `token file`. With `reads` `own` it sees only its own
    sessions and requests; it changes its own only, unless its role is operator or admin. A `reading` caller has the key
    of the page. `expires_at` is the end of its token.
    """

    user: str
    role: str
    proof: str
    may: list[str]
    reads: str
    reading: bool
    expires_at: float | None


class CreateToken(Schema, frozen=True, kw_only=True):
    """A new token of a user, which ends after `expires_s` seconds; None: only when it is revoked."""

    user: str
    role: str = "user"
    expires_s: float | None = None


class TokenBody(View, frozen=True, kw_only=True):
    """A token without its secret."""

    id: str
    user: str
    role: str
    created_at: float
    created_by: str
    expires_at: float | None
    expired: bool


class CreatedToken(View, frozen=True, kw_only=True):
    """A new token with its secret, which no later answer has."""

    id: str
    token: str
    user: str
    role: str
    expires_at: float | None
