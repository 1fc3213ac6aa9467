"""`ullage whoami` and `ullage token`."""

from __future__ import annotations

import argparse
import math

from ullage.cli.listing import Listing
from ullage.cli.output import Column, add_output, print_one
from ullage.cli.several import for_each
from ullage.cli.times import show_time
from ullage.client.local import reach
from ullage.model.choice import parse_choice
from ullage.model.duration import parse_duration
from ullage.model.error import invalid
from ullage.model.identity import Role
from ullage.wire.identity import CreateToken, TokenBody

_TOKENS = (
    Column("ID", lambda t: t.id),
    Column("USER", lambda t: t.user),
    Column("ROLE", lambda t: t.role),
    Column("EXPIRES", lambda t: f"{show_time(t.expires_at)}{' (expired)' if t.expired else ''}"),
    Column("CREATED", lambda t: show_time(t.created_at), wide=True),
    Column("BY", lambda t: t.created_by, wide=True),
)

_STATES = ("valid", "expired")
TOKENS = Listing(
    kind="token",
    columns=_TOKENS,
    body=TokenBody,
    name=lambda token: token.id,
    known_states=_STATES,
    states_of=lambda token: (_STATES[token.expired],),
    users_of=lambda token: (token.user,),
)

_NEVER = "never"


def configure_whoami(parser: argparse.ArgumentParser) -> None:
    add_output(parser)
    parser.set_defaults(act=_whoami)


def configure_token(parser: argparse.ArgumentParser) -> None:
    actions = TOKENS.configure_with_actions(
        parser, lambda _: reach(start=False).tokens(), "ullage token list --state valid"
    )
    create = actions.add_parser(
        "create",
        help="create a token of a user, and print it",
        description="Print a new token on standard output. The server stores only its digest, so it is shown once.",
        epilog="example: ullage token create --user ann --role user --expires 30d",
    )
    create.add_argument("--user", required=True, metavar="NAME", help="the user whom the token stands for")
    create.add_argument("--role", default=Role.USER.value, help=f"{', '.join(Role)} (default: {Role.USER})")
    create.add_argument("--expires", default="90d", metavar="TIME", help="12h, 30d, or `never` (default: 90d)")
    create.set_defaults(act=_create)
    revoke = actions.add_parser("revoke", help="end tokens now", epilog="example: ullage token revoke 5f3a9c01")
    revoke.add_argument("tokens", nargs="+", metavar="ID", help="as `ullage token list` shows it")
    revoke.set_defaults(act=_revoke)


def _whoami(arguments: argparse.Namespace) -> int:
    me = reach(start=False).me()
    if arguments.output == "table":
        print(f"{me.user} ({me.role}, by {me.proof})")
    else:
        print_one(me, arguments.output)
    return 0


def _create(arguments: argparse.Namespace) -> int:
    role = parse_choice(Role, arguments.role, "role")
    text = arguments.expires
    expires_s = None if text == _NEVER else parse_duration(text, "expires")
    if expires_s is not None and not math.isfinite(expires_s):
        raise invalid("expires", text, "write a shorter time, or `never`")
    print(reach(start=False).create_token(CreateToken(user=arguments.user, role=role, expires_s=expires_s)).token)
    return 0


def _revoke(arguments: argparse.Namespace) -> int:
    api = reach(start=False)

    def revoke(token: str) -> None:
        api.revoke_token(token)
        print(f"token {token} is revoked")

    code, _ = for_each(arguments.tokens, revoke)
    return code
