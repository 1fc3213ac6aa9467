"""Node scores as a scheduler extender returns them."""

from __future__ import annotations

import numpy as np

from ullage.service.node_offers import NodeOffers
from ullage.wire.extender import BEST_SCORE


def ranked(offers: NodeOffers) -> dict[str, int]:
    """Return scores in kube-scheduler's range: the best nodes have `BEST_SCORE`, all others have less."""
    scores = offers.scores
    if not offers.names:
        return {}
    best, worst = scores.max(), scores.min()
    scale = (BEST_SCORE - 1) / (best - worst) if best > worst else 0.0
    whole = np.where(scores == best, BEST_SCORE, ((scores - worst) * scale).astype(np.int64))
    return dict(zip(offers.names, whole.tolist(), strict=True))
