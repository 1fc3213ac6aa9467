"""The name under which the work of this process runs."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ullage.client.api import Api


def own_name(api: Api) -> str:
    """Return the user whom the server knows the caller by; of a token that names nobody, the user of this process."""
    me = api.me()
    return user_name() if me.proof == "token file" else me.user


def user_name() -> str:
    """Return the user of this process."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container with a number for a user
        return str(os.getuid())
