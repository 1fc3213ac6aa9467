"""Bodies of the history: what ran, who held what, and what was used of what there was."""

from __future__ import annotations

from ullage.wire.schema import View


class HistoryBody(View, frozen=True, kw_only=True):
    """A session of the history, which outlives its deletion; `number` is the cursor of pages.

    `state` is pending or running while it is open, and then says how it ended: succeed, failed, cancelled or lost.
    It waited `waited_s` from its first task to its first executor. `ran_s` are the seconds of its executors together,
    `core_s` and `card_s` the same times the cores and the cards that they held. `memory_peak_bytes` is the most memory
    that one of them had; None while it is not known.
    """

    session: str
    number: int
    owner: str
    queue: str
    application: str
    resreq: str
    created_at: float
    started_at: float | None
    ended_at: float | None
    state: str
    waited_s: float
    ran_s: float
    core_s: float
    card_s: float
    memory_peak_bytes: int | None
    succeed: int
    failed: int
    cancelled: int


class StayBody(View, frozen=True, kw_only=True):
    """The time during which a session had an executor, or a request held its cards; `number` is the cursor of pages.

    `holder` is the executor, or the uid of the request; `session` is the number of the session, None for a request.
    Of a request the owner is its namespace, and the application its workload. With `ended_at` None it goes on.
    """

    number: int
    holder: str
    session: int | None
    owner: str
    queue: str
    application: str
    node: str
    gpus: list[str]
    cards: float
    cores: float
    memory_bytes: int
    started_at: float
    ended_at: float | None
    memory_peak_bytes: int | None


class UsedBody(View, frozen=True, kw_only=True):
    """What one group used in the step that begins at `at`; a dimension that was not asked for is "".

    `waited_s` are the seconds that sessions waited for their first executor; `sessions` were opened in the step.
    """

    owner: str
    queue: str
    application: str
    at: float
    core_s: float
    card_s: float
    memory_byte_s: float
    waited_s: float
    sessions: int


class OfferedBody(View, frozen=True, kw_only=True):
    """What all nodes offered in the step that begins at `at`, while the server ran."""

    at: float
    core_s: float
    card_s: float
    memory_byte_s: float


class UsageBody(View, frozen=True, kw_only=True):
    """The usage of a time in steps of `step` seconds; what was offered and not used was idle.

    Rows are ordered by time and group. A step without any has no row. `left_out` groups, those that used least, have
    none: `rest` is what they used together, by step.
    """

    since: float
    until: float
    step: float
    rows: list[UsedBody]
    offered: list[OfferedBody]
    rest: list[UsedBody]
    left_out: int


class StartBody(View, frozen=True, kw_only=True):
    """An estimate of when a waiting session gets its first executor: from `earliest` to `latest`.

    The start lies in that range with the chance `confidence`, and is as likely before as after `at`. All four are None
    where there is no estimate. `text` says what it is based on, or why there is none.
    """

    session: str
    at: float | None
    earliest: float | None
    latest: float | None
    confidence: float | None = None
    text: str
