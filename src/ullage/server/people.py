"""Handlers of users: who asks, and the tokens of users."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from starlette.requests import Request

from ullage.model.choice import parse_choice
from ullage.model.error import Conflict
from ullage.model.identity import Role
from ullage.model.name import check_name
from ullage.server import bodies
from ullage.server.access import Access, Authorizer, caller_of, needs, permitted
from ullage.server.durable import durable
from ullage.server.routes import route
from ullage.service.service import UllageService
from ullage.wire.body import body_of
from ullage.wire.identity import CreatedToken, CreateToken, MeBody, TokenBody

BODY_LIMIT = 64 * 1024


class PeopleApi:
    """Handlers over one service. `accesses` yields the id, the method and the access of each route."""

    def __init__(self, service: UllageService, accesses: Callable[[], Iterable[tuple[str, str, Access]]]) -> None:
        self._service, self._authorizer, self._accesses = service, Authorizer(service), accesses

    @route("GET", "/v1/me", "users")
    @needs(Role.VIEWER)
    async def get_me(self, request: Request) -> MeBody:
        """Return who asks, with what role, and what it may do."""
        caller = caller_of(request)
        reads = "all" if self._authorizer.only_owner(request) is None else "own"
        return body_of(MeBody, caller, may=permitted(caller, self._accesses()), reads=reads)

    @route("GET", "/v1/tokens", "users")
    @needs(Role.ADMIN)
    async def list_tokens(self, _: Request) -> list[TokenBody]:
        """Return the tokens of users without their secrets, the oldest first."""
        tokens = self._service.tokens
        return [body_of(TokenBody, token, expired=tokens.is_expired(token)) for token in tokens.all()]

    @route("POST", "/v1/tokens", "users", body=CreateToken, status=201)
    @needs(Role.ADMIN)
    async def create_token(self, request: Request) -> CreatedToken:
        """Create a token of a user. Its secret is in this answer only."""
        body = await bodies.read_body(request, CreateToken, BODY_LIMIT)
        role = parse_choice(Role, body.role, "role")
        by = caller_of(request).user
        token, secret = await durable(self._service.tokens.create, body.user, role, body.expires_s, by)
        return body_of(CreatedToken, token, token=secret)

    @route("POST", "/v1/me/link", "users", status=201)
    @needs(Role.VIEWER)
    async def create_link(self, request: Request) -> CreatedToken:
        """Create a token for the caller's link to the page, valid for 12 hours with the role that the caller has then.

        The kernel must name the caller, at the socket of the machine. Each user has at most 8; the oldest ends.
        """
        caller = caller_of(request)
        if caller.proof != "socket":
            text = f"you are known by your {caller.proof}, which opens the page itself; `ullage page` prints the link"
            raise Conflict(text, code="not-local", field="authorization")
        token, secret = await durable(self._service.tokens.create_link, caller.user, caller.role)
        return body_of(CreatedToken, token, token=secret)

    @route("DELETE", "/v1/tokens/{token}", "users")
    @needs(Role.ADMIN)
    async def revoke_token(self, request: Request) -> None:
        """End a token now."""
        token = check_name("token", request.path_params["token"])
        await durable(self._service.tokens.revoke, token, caller_of(request).user)
