"""The name under which the work of this process runs."""

from __future__ import annotations

from ullage.client.api import Api
from ullage.client.spec import user_name


def own_name(api: Api) -> str:
    """Return the user whom the server knows the caller by; of a token that names nobody, the user of this process."""
    me = api.me()
    return user_name() if me.proof == "token file" else me.user
