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

    def best_names(self, most: int) -> list[str]:
        """Return the names of the `most` nodes with the highest scores, in the order of `names`.

        Of the nodes with the lowest of these scores it takes some in equal distances, and not neighbours: names often
        follow zones or racks, among which others may want to choose.
        """
        if len(self.names) <= most:
            return self.names
        order = np.argsort(-self.scores, kind="stable")
        last = self.scores[order[most - 1]]
        above, ties = order[self.scores[order] > last], order[self.scores[order] == last]
        count = most - len(above)
        chosen = np.concatenate([above, ties[np.arange(count) * len(ties) // count]])
        return [self.names[k] for k in np.sort(chosen).tolist()]
