"""Notices of ended sessions: stored with the end, sent at least once, tried again a bounded number of times.

The service decides what is due; an adapter sends it and reports back. A notice is stored apart from its session, so
that the session may be deleted before it is delivered.
"""

from __future__ import annotations

import json
from dataclasses import replace

from ullage.model.notice import Notice
from ullage.model.notify_on import NotifyOn
from ullage.model.task import TaskState
from ullage.service.context import ServiceContext
from ullage.service.journal import in_one_write
from ullage.service.news import News
from ullage.service.state import SessionRecord
from ullage.service.store_port import Drop, PutNotice, Snapshot

MOST_ATTEMPTS = 8
FIRST_PAUSE_S = 5.0
"""Seconds before the second attempt; each later pause is three times as long, all together an hour and a half."""


class Notices:
    """Notices that are not delivered yet. There is news of `News.NOTICES` when there are more of them."""

    def __init__(self, context: ServiceContext) -> None:
        self._journal, self._events, self._clock = context.journal, context.events, context.clock
        self._news = context.news
        self._waiting: dict[str, Notice] = {}

    def recover(self, snapshot: Snapshot) -> None:
        """Take the notices that were not delivered before a restart."""
        self._waiting = {notice.id: notice for notice in snapshot.notices}

    def ended(self, record: SessionRecord) -> None:
        """Store the notice of a session that has just closed, if it asked for one."""
        spec, outcome = record.session.spec, _outcome(record)
        if spec.notify is None or (spec.notify_on is NotifyOn.FAIL and outcome == "succeed"):
            return
        if outcome == "cancelled" and not any(record.counts.values()):
            return  # it was refused, or given up, before it had a task
        key = record.session.logs
        notice = Notice(key, record.id, spec.notify, _body(record, outcome, key), due_at=self._clock())
        # Nothing is sent before the end is durable: a restart would take it back.
        self._journal.write(PutNotice(notice), then=lambda: self._stored(notice))

    def _stored(self, notice: Notice) -> None:
        self._waiting[notice.id] = notice
        self._news.publish(News.NOTICES)

    @property
    def waiting(self) -> list[Notice]:
        """The notices that are not delivered, the next one first."""
        return sorted(self._waiting.values(), key=lambda notice: notice.due_at)

    @in_one_write
    def sent(self, notice: Notice) -> None:
        """Forget a notice that was delivered."""
        self._forget(notice)
        self._events.add("session.notified", notice.session, message=notice.host)

    @in_one_write
    def failed(self, notice: Notice, reason: str, *, final: bool) -> None:
        """Try a notice again after a pause, or give it up."""
        attempts = notice.attempts + 1
        if final or attempts >= MOST_ATTEMPTS:
            self._forget(notice)
            text = f"{notice.host} did not take the notice after {attempts} attempts: {reason}"
            self._events.add("session.notice-failed", notice.session, message=text)
            return
        due_at = self._clock() + FIRST_PAUSE_S * 3.0 ** (attempts - 1)
        later = self._waiting[notice.id] = replace(notice, attempts=attempts, due_at=due_at)
        self._journal.write(PutNotice(later))

    def _forget(self, notice: Notice) -> None:
        self._waiting.pop(notice.id, None)
        self._journal.write(Drop(PutNotice, notice.id))


def _outcome(record: SessionRecord) -> str:
    counts = record.counts
    if counts[TaskState.FAILED]:
        return "failed"
    return "cancelled" if record.session.cancelled or counts[TaskState.CANCELLED] else "succeed"


def _body(record: SessionRecord, outcome: str, key: str) -> str:
    session, spec = record.session, record.session.spec
    ended = (TaskState.SUCCEED, TaskState.FAILED, TaskState.CANCELLED)
    return json.dumps(
        {
            "notice": key,
            "session": session.id,
            "outcome": outcome,
            "reason": session.cancel_reason,
            "application": spec.application,
            "queue": spec.queue,
            "owner": spec.owner,
            "created_at": session.created_at,
            "closed_at": session.closed_at,
            **{state.value: record.counts[state] for state in ended},
        }
    )
