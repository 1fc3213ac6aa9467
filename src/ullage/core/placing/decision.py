"""The answers to a request for cards: candidates, scores, a choice or a refusal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ullage.core.verdict.sentences import MEANINGS, first_text
from ullage.core.verdict.stages import Stage
from ullage.model.allocation import Charge
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.zone_placement import ZonePlacement


@dataclass(frozen=True, slots=True)
class Candidates:
    """Cards that would do, per node in order of name, and what each stage did to get there.

    `curable`, where there are none, says whether freed capacity could help on any node. `with_reserved` says that room
    was reserved for others while they were judged.
    """

    by_node: dict[str, tuple[str, ...]]
    stages: tuple[Stage, ...]
    curable: bool = False
    with_reserved: bool = False

    @property
    def refusals(self) -> Sequence[Rejection]:
        """The rejections of the stage that decides, those that freed capacity could cure first; none if some fit.

        The last stage decides that removed a card which could take the request as it is, had it room or the quota. What
        rules out other cards for good is no reason then. Without such a card the stage that left nothing decides.
        """
        if self.by_node:
            return ()
        last = next((stage for stage in self.stages if stage.reached and not stage.after), None)
        stage = next((stage for stage in reversed(self.stages) if self._could_take(stage)), last)
        return (stage and (stage.by_cure or stage.removed)) or (Rejection(Code.NO_CANDIDATE, Cure.NODE_CHANGE),)

    def _could_take(self, stage: Stage) -> bool:
        """Return whether a stage removed a card that could take the request; none where others would leave in vain."""
        if not stage.possible:
            return False
        first = next(iter(stage.by_cure))
        return self.curable or first.cure not in (Cure.CAPACITY, Cure.QUOTA)

    @property
    def refusal(self) -> Refusal:
        """The reason why there is no candidate; room reserved for others comes first if that is the reason."""
        if not self.with_reserved:
            return Refusal(self.refusals, self.stages, self.curable)
        removed = (rejection for stage in self.stages for rejection in stage.removed)
        reserved = (rejection for rejection in removed if rejection.code is Code.NOMINATED)
        others = (rejection for rejection in self.refusals if rejection.code is not Code.NOMINATED)
        return Refusal((*reserved, *others), self.stages, self.curable)


@dataclass(frozen=True, slots=True)
class Scores:
    """Higher is better: per node, and per node and card."""

    nodes: dict[str, float]
    cards: dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Choice:
    """The node and cards a request gets, and what it takes of each; where they lie in the books that were looked at.

    `placement` says in which zones it lies, if that was decided with it.
    """

    node: str
    gpus: tuple[str, ...]
    charges: tuple[Charge, ...]
    score: float = 0
    cards: Sequence[int] | None = field(default=None, compare=False, repr=False)
    placement: ZonePlacement | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, repr=False)
class Refusal:
    """Why a request is not placed: the first rejection decides, and `stages` have all steps.

    `helps` says whether freed capacity could help on any node, if whole nodes were examined. As text, it is the
    deciding reason in one sentence.
    """

    rejections: Sequence[Rejection]
    stages: tuple[Stage, ...] = ()
    helps: bool | None = None

    @property
    def code(self) -> Code:
        """The code of the deciding reason."""
        return self.rejections[0].code if self.rejections else Code.NO_CANDIDATE

    @property
    def curable(self) -> bool:
        """Whether freed capacity could help at all, so that preemption is worth a try."""
        return any(map(_is_curable, self.rejections)) if self.helps is None else self.helps

    def __str__(self) -> str:
        if not self.rejections:
            return f"{self.code}: {MEANINGS[self.code]}"
        return f"{self.code}: {first_text(self.rejections)}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.code}, {len(self.rejections)} rejections, curable={self.curable}>"


@dataclass(frozen=True, slots=True)
class Decision:
    """All that `simulate` knows: candidates with their stages, scores, and the choice or the refusal.

    `terms` are what the strategy's decision for the chosen node is made of, where that is more than its score.
    """

    candidates: Candidates
    scores: Scores
    outcome: Choice | Refusal
    terms: Mapping[str, float] = field(default_factory=dict)


def _is_curable(rejection: Rejection) -> bool:
    return rejection.cure in (Cure.CAPACITY, Cure.QUOTA)
