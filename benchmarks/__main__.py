"""`make bench`: every benchmark, or those named in ARGS."""

from __future__ import annotations

import sys
from importlib import import_module

from ullage.core import warming

ALL = (
    "tasks",
    "cycle",
    "drf",
    "allocator",
    "placement",
    "links",
    "zones",
    "gang",
    "reclaim",
    "room",
    "store",
    "past",
    "engine",
    "extender",
    "memory",
    "policies",
    "starts",
    "strangers",
    "verbs",
    "race",
    "failover",
)

for step in warming.steps():
    step()  # what decides is compiled, or read back, before anything is measured
for name in sys.argv[1:] or ALL:
    import_module(f"benchmarks.{name}").main()
    print()
