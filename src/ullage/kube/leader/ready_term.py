"""Whether this process may decide: it has read the cluster, leads, and knows what was bound before its term."""

from __future__ import annotations

from collections.abc import Callable

from ullage.kube.client.lease import Candidate
from ullage.kube.mirror.mirror import Mirror
from ullage.model.error import Unavailable


class ReadyTerm:
    """The leadership term in which one process may decide. Parts with further conditions check these themselves."""

    def __init__(self, candidate: Candidate, mirror: Mirror) -> None:
        self._candidate, self.mirror = candidate, mirror
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, begins: Callable[[], None]) -> None:
        """Call `begins` at the start of each term, before any request is answered in it."""
        self._subscribers.append(begins)

    def start(self, epoch: int) -> None:
        """Start a term: what was bound before it is known."""
        for begins in self._subscribers:
            begins()
        self.mirror.term = epoch

    def check(self) -> int:
        """Return the leadership term in which decisions are made.

        Raises:
            Unavailable: there is none now.

        """
        if not self.mirror.ready:
            raise Unavailable("what the cluster holds has not been read yet", code="not-ready")
        epoch = self._candidate.epoch
        if epoch is None:
            holder = self._candidate.holder or "nobody"
            raise Unavailable(f"this process does not lead; {holder} does", code="not-leading")
        if self.mirror.term != epoch:
            raise Unavailable("what was bound before this process led has not been read yet", code="not-ready")
        return epoch

    def begun(self) -> bool:
        """Return whether decisions may be made now: the guard of controllers."""
        return not self.unready

    @property
    def unready(self) -> str:
        """The reason why nothing can be decided now; "" if it can."""
        try:
            self.check()
        except Unavailable as error:
            return error.message
        return ""
