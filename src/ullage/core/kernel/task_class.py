"""A workload in rows: one row of integers per task class, and its popularity.

A row is (cpu in milli, share in thousandths of a card, cards, allowed models as a bit mask). A task without cards has
share 0 and 0 cards. Whole cards have share 1000. A part is one card with a share below 1000. Popularity is a float64
per row; popularities sum to 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Cards = npt.NDArray[np.int64]
"""Free thousandths of each card of a node."""

Classes = npt.NDArray[np.int64]
"""One row of CPU, SHARE, CARDS, MODELS per task class."""

Popularity = npt.NDArray[np.float64]
"""The part of all tasks that belong to each class."""


class Mix(NamedTuple):
    """A workload on one fleet."""

    classes: Classes
    popularity: Popularity


CPU = 0
SHARE = 1
CARDS = 2
MODELS = 3
COLUMNS = 4

WHOLE = 1000
"""The share of an idle card."""

MOST_KINDS = 62
"""Kinds of cards that a mask can distinguish; a class that names a model may not use the kinds beyond."""

ANY_MODEL = -1
"""The mask that allows every model (models are numbered 0..62)."""
