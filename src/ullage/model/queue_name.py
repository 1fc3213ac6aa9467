"""The names of the queues that always exist. Programs that only name queues need no more of them."""

from __future__ import annotations

ROOT = "root"
DEFAULT_QUEUE = "default"
