"""The past: sessions that were opened, and who held what, when. It outlives what it is about."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.model.past_state import PastState


@dataclass(frozen=True, slots=True)
class SessionHistory:
    """A session that was opened; no two of a store have the same `number`. Times are in seconds since the epoch.

    It has asked for executors since `asked_at`, and got the first one at `started_at`. The counts of tasks are those
    at its end, and 0 before.
    """

    number: int
    session: str
    owner: str
    queue: str
    application: str
    resreq: str
    created_at: float
    asked_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    state: PastState = PastState.PENDING
    succeed: int = 0
    failed: int = 0
    cancelled: int = 0

    def waited_s(self, now: float) -> float:
        """Return the seconds from the first task until the first executor, the end, or `now`."""
        if self.asked_at is None:
            return 0.0
        until = next((at for at in (self.started_at, self.ended_at) if at is not None), now)
        return max(0.0, until - self.asked_at)


@dataclass(frozen=True, slots=True)
class Stay:
    """The time during which a session had an executor, or a request held its cards; `ended_at` None goes on.

    `holder` is the id of the executor, or the uid of the request. A request has no `session`: its owner is its
    namespace, its application its workload. `cards` are the parts of cards that it held together, `cores` its CPUs.
    `memory_peak_bytes` is the most memory that the executor had by then; None is not known.
    """

    number: int
    holder: str
    session: int | None
    owner: str
    queue: str
    application: str
    node: str
    gpus: tuple[str, ...]
    cards: float
    cores: float
    memory_bytes: int
    started_at: float
    ended_at: float | None = None
    memory_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CapacitySpan:
    """What all nodes had together from `started_at` until `ended_at`, the last moment at which that was known."""

    number: int
    cards: float
    cores: float
    memory_bytes: int
    started_at: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class PastSession:
    """A session of the history with what its executors used: their seconds together, and the most memory of one."""

    history: SessionHistory
    ran_s: float
    core_s: float
    card_s: float
    memory_peak_bytes: int | None


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """Sessions that were open at some time from `since` until `until`, by number; None and () exclude none.

    Of more than `limit` it asks for the first ones, or for the `newest`.
    """

    since: float | None = None
    until: float | None = None
    owner: str | None = None
    queue: str | None = None
    states: tuple[PastState, ...] = ()
    after: int = 0
    limit: int = 100
    newest: bool = False


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """The usage from `since` until `until`, in steps of `step` seconds, by some of `DIMENSIONS`.

    Of more than `limit` groups it asks for those that used most, and for the sum of the others.
    """

    since: float
    until: float
    step: float
    by: tuple[str, ...] = ()
    owner: str | None = None
    queue: str | None = None
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class ClosedQuery:
    """Closed sessions without tasks: closed before a time, of a queue, of an owner; None excludes none."""

    before: float | None = None
    queue: str | None = None
    owner: str | None = None
    after: int = 0
    limit: int = 100


@dataclass(frozen=True, slots=True)
class Expiry:
    """Rows of the history to drop: those that ended before a time, and those beyond the newest `keep` of each table."""

    before: float | None = None
    keep: int | None = None
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long the past is kept: seconds and rows of each table of the history, seconds of closed sessions.

    None keeps all.
    """

    history_s: float | None = None
    history_rows: int | None = None
    closed_s: float | None = None


@dataclass(frozen=True, slots=True)
class Used:
    """What was used in the step that begins at `at`. A dimension that was not asked for is "".

    `waited_s` are the seconds that sessions waited for their first executors, and `sessions` were opened in the step.
    """

    owner: str
    queue: str
    application: str
    at: float
    core_s: float = 0.0
    card_s: float = 0.0
    memory_byte_s: float = 0.0
    waited_s: float = 0.0
    sessions: int = 0


@dataclass(frozen=True, slots=True)
class Offered:
    """What all nodes offered in the step that begins at `at`, while the server ran."""

    at: float
    core_s: float
    card_s: float
    memory_byte_s: float


@dataclass(frozen=True, slots=True)
class UsageReport:
    """What was used, and what was there to be used. `rest` is what `left_out` groups used together, by step."""

    used: tuple[Used, ...]
    offered: tuple[Offered, ...]
    rest: tuple[Used, ...] = ()
    left_out: int = 0
