"""Examples of request bodies for the OpenAPI document, by operation; a test sends each of them to a server."""

from __future__ import annotations

from typing import Any


def _example(summary: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"summary": summary, "value": value}


EXAMPLES: dict[str, dict[str, Any]] = {
    "put_queue": {
        "team": _example("A queue that gets twice the share of its siblings", {"parent": "root", "weight": 2}),
        "guarantee": _example("A queue with a guarantee and a limit", {"guarantee": "cpu=1", "limit": "cpu=4,gpu=2"}),
    },
    "put_application": {
        "program": _example("A program with one argument", {"command": "/bin/sleep", "arguments": ["60"]}),
    },
    "create_session": {
        "functions": _example(
            "Python functions, up to four executors of one core each",
            {"application": "function", "resreq": "cpu=1,mem=256m", "max_instances": 4},
        ),
        "card": _example(
            "A program on one card", {"application": "command", "resreq": "cpu=1,mem=1g,gpu=1", "owner": "alice"}
        ),
    },
    "update_session": {
        "priority": _example("A higher priority", {"priority": 10}),
    },
    "submit_tasks": {
        "two": _example("Two tasks (base64)", {"inputs": ["b25l", "dHdv"], "key": "a-key-of-the-client"}),
    },
    "create_allocation": {
        "card": _example("One whole card", {"uid": "pod-1", "resreq": "gpu=1"}),
        "part": _example("A quarter of a card", {"uid": "pod-2", "resreq": "gpu=0.25"}),
    },
    "plan_allocation": {
        "cards": _example("Would two cards be free?", {"resreq": "gpu=2"}),
    },
    "put_quota": {
        "workers": _example("At most eight workers", {"total": {"max_workers": 8}}),
    },
}
"""By operation id, then by name."""
