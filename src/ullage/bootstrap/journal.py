"""The journal of a server as a file for a replay."""

from __future__ import annotations

import json
from pathlib import Path

from ullage.storage.history import is_database, read_history


def export_journal(journal: Path, folder: Path) -> Path:
    """Return a file of events unchanged; write the events of a server's database to a file in `folder`.

    Raises:
        InvalidRequest: the journal cannot be read.

    """
    if not is_database(journal):
        return journal
    events = list(read_history(journal))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "journal.jsonl"
    file.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return file
