"""What a notebook shows of a client and of a session."""

from __future__ import annotations

import html

from ullage.client.api import Api
from ullage.client.transport import Transport
from ullage.model.error import UllageError
from ullage.wire.html import bar, facts, html_rows

_ANSWER_S = 2.0
"""Seconds in which a server has to answer: a cell must not wait for one that is gone."""


def client_html(transport: Transport) -> str:
    """Return a server with its nodes, or why it does not answer."""
    hurried = transport.hurried(_ANSWER_S)
    try:
        overview = Api(hurried).overview()
    except UllageError as error:
        return _silent("client", error)
    finally:
        hurried.close()
    cards, free = len(overview.gpus), overview.room.idle_milli / 1000
    known = {
        "server": f"Ullage {overview.server.version} in {overview.server.home}",
        "nodes": len(overview.nodes),
        "cards": f"{cards}, {free:g} of them free",
        "open sessions": overview.sessions_open,
    }
    return facts(known.items()) + html_rows(overview.nodes)


def session_html(transport: Transport, session: str) -> str:
    """Return a session with its tasks, and what it waits for."""
    hurried = transport.hurried(_ANSWER_S)
    try:
        api = Api(hurried)
        body = api.session(session)
        why = api.why(session) if body.pending and not body.held else None
    except UllageError as error:
        return _silent(f"session {session}", error)
    finally:
        hurried.close()
    ended = body.succeed + body.failed + body.cancelled
    total = ended + body.pending + body.running
    known = {
        "session": f"{body.id} ({body.activity})",
        "for": f"{body.owner} in queue {body.queue}, each executor {body.resreq}",
        "tasks": f"{body.pending:,} wait, {body.running:,} run, {body.failed:,} failed, {body.cancelled:,} cancelled",
        "executors": f"{body.held} held, {body.deserved} deserved",
    }
    waits = "" if why is None else f"<p><b>{html.escape(why.summary)}</b></p>"
    return facts(known.items()) + bar(ended, total, f"{ended:,} of {total:,} tasks have ended") + waits


def _silent(what: str, error: UllageError) -> str:
    return f"<p>{html.escape(what)}: {html.escape(error.message)}</p>"
