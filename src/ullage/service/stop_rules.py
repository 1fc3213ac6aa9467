"""How long a task that is ended has between SIGTERM and SIGKILL."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.model.error import invalid
from ullage.model.session import SessionSpec

STOP_GRACE_S = 5.0
MOST_GRACE_S = 600.0


@dataclass(frozen=True, slots=True)
class StopRules:
    """Seconds between SIGTERM and SIGKILL: for sessions that ask for none, and the most that one may ask for."""

    grace_s: float = STOP_GRACE_S
    most_grace_s: float = MOST_GRACE_S

    def check(self, spec: SessionSpec) -> None:
        """Refuse a session that asks for too much.

        Raises:
            InvalidRequest: its `grace_s` is above the most.

        """
        if spec.grace_s is not None and spec.grace_s > self.most_grace_s:
            fix = f"at most {self.most_grace_s:g} s are allowed here (policy.most_grace_s)"
            raise invalid("grace_s", spec.grace_s, fix)

    def of(self, spec: SessionSpec) -> float:
        """Return the grace of a session. One that was stored under other settings keeps to the present most."""
        return min(self.grace_s if spec.grace_s is None else spec.grace_s, self.most_grace_s)


USUAL_STOPS = StopRules()
