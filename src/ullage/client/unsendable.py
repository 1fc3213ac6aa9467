"""Objects of a client that cannot be sent to an executor."""

from __future__ import annotations

from typing import Any

from ullage.model.error import InvalidRequest


class Unsendable:
    """Refuses to be pickled; `_instead` says what to send or to do."""

    _instead = "create one inside the function"

    def __reduce__(self) -> Any:
        raise InvalidRequest(f"it belongs to this process; {self._instead}")
