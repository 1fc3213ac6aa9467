"""Logs that cannot fill the disk: a file that grows past its limit begins anew, and says so.

Workers and programs write to files that were opened to append, so a file cut to nothing goes on from
its new end, and no writer notices. What was written first is what is lost: what a program said last
is what people look for.
"""

from __future__ import annotations

import os
from pathlib import Path

from ullage.model.quantity import format_bytes

LIMIT = 1 << 30
"""Bytes one output file may have before it begins anew."""

CHECK_S = 1.0
"""Seconds between looks at the files that are being written."""


def begin_anew_if_larger(path: Path, limit: int = LIMIT) -> bool:
    """Cut a file of more than `limit` bytes to one line that says what was lost."""
    try:
        if path.stat().st_size <= limit:
            return False
        os.truncate(path, 0)
        with path.open("ab") as file:
            file.write(f"[ullage: more than {format_bytes(limit)} was written; what came before is lost]\n".encode())
    except FileNotFoundError:
        return False
    return True
