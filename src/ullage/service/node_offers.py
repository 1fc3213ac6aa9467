"""The offers of the nodes of a cluster for one request."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress

import numpy as np
import numpy.typing as npt

from ullage.core.placing.offers import NodeRefusal


@dataclass(frozen=True, slots=True)
class NodeOffers:
    """The nodes that fit a request, each with its score, and why other nodes do not.

    `refused` has the names of the nodes for each reason.
    """

    names: list[str]
    scores: npt.NDArray[np.float64]
    refused: list[tuple[NodeRefusal, list[str]]]

    @property
    def best(self) -> str | None:
        """Return the node with the highest score; of several, the first by name."""
        if not self.names:
            return None
        return min(compress(self.names, self.scores == self.scores.max()))

    @property
    def refusals(self) -> dict[str, NodeRefusal]:
        """Return the reason for each refused node."""
        return {name: refusal for refusal, names in self.refused for name in names}
