"""Scores of nodes as a scheduler extender answers them."""

from __future__ import annotations

import numpy as np

from ullage.service.node_offers import NodeOffers
from ullage.wire.extender import BEST_SCORE


def ranked(offers: NodeOffers) -> dict[str, int]:
    """Scores as kube-scheduler takes them: the best has `BEST_SCORE`, who is not the best has less."""
    scores = offers.scores
    if not offers.names:
        return {}
    best, worst = scores.max(), scores.min()
    scale = (BEST_SCORE - 1) / (best - worst) if best > worst else 0.0
    whole = np.where(scores == best, BEST_SCORE, ((scores - worst) * scale).astype(np.int64))
    return dict(zip(offers.names, whole.tolist(), strict=True))
