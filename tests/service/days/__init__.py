"""Random days of a whole service on a virtual clock, and what must not happen on any of them.

A day has nodes, queues, sessions of all sizes and priorities, gangs, cordons, lost executors and restarts. `Watch`
looks at every step: each eviction has a winner that starts and keeps its room for the protected time, and no session
that deserves more waits longer than the grace and the protection while others could give way.

`python -m tests.service.days --days 1000` runs as many days and prints what they came to.
"""

from tests.service.days.day import Day, run_days
from tests.service.days.tally import Tally
from tests.service.days.watch import Watch

__all__ = ["Day", "Tally", "Watch", "run_days"]
