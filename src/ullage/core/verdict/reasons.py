"""What the reasons of the kernel mean: the code and cure of each, and the stage of a decision that reports it.

To add a rule over cards, give it a number in `core/kernel/reasons.py`, a line here, and a condition: in
`core/verdict/kinds.py` if freed capacity cannot change it, else in `core/kernel/verdict.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np

from ullage.core.kernel import reasons as kernel
from ullage.core.kernel.columns import Flags
from ullage.model.part import CardSelector, Isolation
from ullage.model.rejection import Code, Cure
from ullage.model.request import ResourceRequirement


class StageKind(StrEnum):
    """What could cure the rejections of a stage: a change of the card, freed capacity, or a change of the node."""

    EXCLUSION = "exclusion"
    CAPACITY = "capacity"
    NODE = "node"


@dataclass(frozen=True)
class CardStage:
    """A named step of a decision over cards: the reasons that it reports.

    It is reported for the requests to which it `applies`, also if it removes no card, and for others if it removes one.
    """

    name: str
    kind: StageKind
    reasons: frozenset[int]
    applies: Callable[[ResourceRequirement], bool] = lambda _asked: True

    @cached_property
    def removes(self) -> Flags:
        """Per reason, whether the step reports it."""
        return np.array([reason in self.reasons for reason in range(kernel.REASONS)])


MEANS: dict[int, tuple[Code, Cure]] = {
    kernel.WRONG_POOL: (Code.WRONG_POOL, Cure.NODE_CHANGE),
    kernel.USED_BY_OTHER: (Code.USED_BY_OTHER, Cure.NODE_CHANGE),
    kernel.GPU_MISSING: (Code.GPU_MISSING, Cure.NODE_CHANGE),
    kernel.GPU_CORDONED: (Code.GPU_CORDONED, Cure.NODE_CHANGE),
    kernel.GPU_NOT_RUNNING: (Code.GPU_NOT_RUNNING, Cure.NODE_CHANGE),
    kernel.NO_CAPACITY: (Code.NO_CAPACITY, Cure.NODE_CHANGE),
    kernel.ISOLATION_POLICY: (Code.ISOLATION_POLICY, Cure.NODE_CHANGE),
    kernel.WRONG_INDEX: (Code.WRONG_INDEX, Cure.NODE_CHANGE),
    kernel.WRONG_UUID: (Code.WRONG_UUID, Cure.NODE_CHANGE),
    kernel.ISOLATION_UNSUPPORTED: (Code.ISOLATION_UNSUPPORTED, Cure.NODE_CHANGE),
    kernel.WRONG_MODEL: (Code.WRONG_MODEL, Cure.NODE_CHANGE),
    kernel.WRONG_VENDOR: (Code.WRONG_VENDOR, Cure.NODE_CHANGE),
    kernel.NODE_AFFINITY: (Code.NODE_AFFINITY, Cure.NODE_CHANGE),
    kernel.NODE_TAINTED: (Code.NODE_TAINTED, Cure.NODE_CHANGE),
    kernel.CAPACITY_UNKNOWN: (Code.CAPACITY_UNKNOWN, Cure.NODE_CHANGE),
    kernel.NO_TEMPLATE: (Code.NO_PARTITION_TEMPLATE, Cure.NODE_CHANGE),
    kernel.COMPUTE_TOTAL: (Code.GPU_COMPUTE, Cure.NODE_CHANGE),
    kernel.VRAM_TOTAL: (Code.GPU_VRAM, Cure.NODE_CHANGE),
    kernel.LOCKED: (Code.ISOLATION_LOCKED, Cure.CAPACITY),
    kernel.USER_LIMIT: (Code.GPU_USERS, Cure.CAPACITY),
    kernel.NOT_IDLE: (Code.GPU_NOT_IDLE, Cure.CAPACITY),
    kernel.COMPUTE: (Code.GPU_COMPUTE, Cure.CAPACITY),
    kernel.VRAM: (Code.GPU_VRAM, Cure.CAPACITY),
    kernel.NO_COMPUTE: (Code.GPU_COMPUTE, Cure.CAPACITY),
    kernel.SHARE: (Code.GPU_SHARE, Cure.CAPACITY),
    kernel.PARTITION: (Code.NO_PARTITION_SLOT, Cure.CAPACITY),
}
"""The code and cure by reason; a partition has the code of its own search (`core/verdict/partition.py`)."""

CURABLE = np.array([reason in MEANS and MEANS[reason][1] is Cure.CAPACITY for reason in range(kernel.REASONS)])
"""Per reason, whether freed capacity could cure it."""


def names_isolation(asked: ResourceRequirement) -> bool:
    """Return whether the isolation of a request matters to the card: it shares the card, or asks for a policy."""
    cards = asked.cards
    return asked.part is not None or cards.policy is not None or cards.isolation is not Isolation.SHARED


def _names_uuids(cards: CardSelector) -> bool:
    return bool(cards.uuids or cards.not_uuids)


def _names_models(cards: CardSelector) -> bool:
    return bool(cards.models or cards.model_words or cards.not_model_words)


def _excluding(
    name: str, *reasons: int, applies: Callable[[ResourceRequirement], bool] = lambda _asked: True
) -> CardStage:
    return CardStage(name, StageKind.EXCLUSION, frozenset(reasons), applies)


CARD_STAGES = (
    _excluding("pool", kernel.WRONG_POOL, applies=lambda asked: asked.cards.pool is not None),
    _excluding("phase", *range(kernel.USED_BY_OTHER, kernel.ISOLATION_POLICY), kernel.CAPACITY_UNKNOWN),
    _excluding("isolation-policy", kernel.ISOLATION_POLICY, applies=names_isolation),
    _excluding("index", kernel.WRONG_INDEX, applies=lambda asked: bool(asked.cards.indices)),
    _excluding("uuid", kernel.WRONG_UUID, applies=lambda asked: _names_uuids(asked.cards)),
    _excluding("isolation-mode", kernel.ISOLATION_UNSUPPORTED, applies=names_isolation),
    _excluding("model", kernel.WRONG_MODEL, applies=lambda asked: _names_models(asked.cards)),
    _excluding("vendor", kernel.WRONG_VENDOR, applies=lambda asked: bool(asked.cards.vendors)),
    _excluding("node-affinity", kernel.NODE_AFFINITY, applies=lambda asked: bool(asked.nodes.required)),
    _excluding("node-taint", kernel.NODE_TAINTED, applies=lambda _asked: False),
    _excluding("template", kernel.NO_TEMPLATE, applies=lambda asked: asked.cards.isolation is Isolation.PARTITIONED),
    CardStage("isolation-lock", StageKind.CAPACITY, frozenset({kernel.LOCKED})),
    CardStage("users", StageKind.CAPACITY, frozenset({kernel.USER_LIMIT}), lambda asked: asked.shares_cards),
    CardStage("whole-card", StageKind.CAPACITY, frozenset({kernel.NOT_IDLE}), lambda asked: asked.whole),
    CardStage(
        "room",
        StageKind.CAPACITY,
        frozenset({kernel.COMPUTE_TOTAL, kernel.VRAM_TOTAL, *range(kernel.COMPUTE, kernel.REASONS)}),
        lambda asked: not asked.whole,
    ),
)
"""The steps over single cards, in the order in which they are reported."""
