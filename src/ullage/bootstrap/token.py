"""The token of a server, which permits every operation."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from ullage.model.counted import counted
from ullage.model.error import Unavailable
from ullage.wire.private_file import write_private

_GOOD = re.compile(r"[\x21-\x7e]{16,}")


def own_token(path: Path) -> str:
    """Return the token in the file; the first start creates one.

    Raises:
        Unavailable: the file cannot be read or written (`token-unreadable`), or has no valid token (`token-unusable`).

    """
    try:
        token = path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return _make(path)
    except OSError as error:
        raise Unavailable(f"the token {path} cannot be read: {error.strerror}", code="token-unreadable") from None
    if not _GOOD.fullmatch(token):
        fix = "a token has at least 16 visible ASCII characters and no spaces; remove the file to get a new token"
        raise Unavailable(f"the token {path} has {counted(len(token), 'character')}: {fix}", code="token-unusable")
    return token


def _make(path: Path) -> str:
    token = secrets.token_hex(32)
    try:
        write_private(path, f"{token}\n".encode())
    except OSError as error:
        raise Unavailable(f"the token {path} cannot be written: {error.strerror}", code="token-unreadable") from None
    return token
