"""The published curves of the FGD simulator (hkust-adsl/kubernetes-scheduler-simulator)."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ullage.sim.arrivals import UNTIL_PERCENT
from ullage.sim.rows import Row, columns_of, invalid_trace, read_rows

NAMES = {
    "01-Random": "random",
    "02-DotProd": "dot-product",
    "03-GpuClustering": "clustering",
    "04-GpuPacking": "packing",
    "05-BestFit": "best-fit",
    "06-FGD": "fgd",
}
"""The names of its policies here."""

_LOADS = tuple(str(percent) for percent in range(UNTIL_PERCENT + 1))
_SUFFIX = "-published"

Curves = dict[tuple[str, str], npt.NDArray[np.float64]]


def read_curves(path: Path) -> Curves:
    """Return mean curves over the seeds by (workload, policy): percent of all cards at each percent of arrived load.

    Raises:
        InvalidRequest: `invalid-trace`; a column is missing or a value is not a number.

    """
    missing = {"workload", "sc_policy", *_LOADS}.difference(columns_of(path))
    if missing:
        shown = ", ".join(sorted(missing)[:5])
        raise invalid_trace(path, 1, shown, "", fix="published curves have workload, sc_policy and the loads 0 to 130")
    found: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for row in read_rows(path):
        policy = row.text("sc_policy")
        found[row.text("workload"), NAMES.get(policy, policy)].append([_percent(row, load) for load in _LOADS])
    return {key: np.mean(curves, axis=0) for key, curves in found.items()}


def _percent(row: Row, column: str) -> float:
    try:
        return float(row.text(column))
    except ValueError:
        raise row.bad(column, "write a percentage such as 95.2") from None


def curve_of(curves: Curves, trace: str, policy: str) -> npt.NDArray[np.float64] | None:
    """Return the published curve of a trace and a policy; `fgd-published` has that of `fgd`."""
    return curves.get((trace, policy.removesuffix(_SUFFIX)))
