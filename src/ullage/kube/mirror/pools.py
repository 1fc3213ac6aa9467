"""The pools of the cards of a node: from an annotation or a label of the node, else from rules of the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from ullage.kube.client.objects import KubeNode as NodeObject
from ullage.model.card_pool import PoolRule
from ullage.model.error import InvalidAnnotation, invalid_annotation
from ullage.model.gpu import Gpu
from ullage.wire.pod import DOMAIN

POOL = "gpupool"
"""The node label, under the domain, that names the pool of all cards of the node."""

CARDS_OF_POOLS = "gpupool-cards"
"""The node annotation, under the domain, with the pools of single cards: `{"training": ["0", "GPU-8932f937"]}`.

A card is named by its index on the node or by its uuid.
"""


@dataclass(frozen=True, slots=True)
class CardPools:
    """Finds the pool of each card: from the annotation of its node, else the label, else the first matching rule."""

    domain: str = DOMAIN
    rules: tuple[PoolRule, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The pools that rules name, whether they have cards or not."""
        return frozenset(rule.name for rule in self.rules)

    def of(self, node: NodeObject, cards: Sequence[Gpu], notes: list[str]) -> tuple[Gpu, ...]:
        """Return the cards of a node with their pools.

        If the annotation cannot be parsed, no card of the node is in a pool, and a sentence is added to `notes`.
        """
        labels = node.metadata.labels or {}
        try:
            named = self._named(node, cards, notes)
        except InvalidAnnotation as error:
            notes.append(error.message)
            return tuple(cards)
        of_node = labels.get(f"{self.domain}/{POOL}") or None
        return tuple(
            replace(gpu, pool=named.get(gpu.uuid) or of_node or self._by_rule(labels, gpu) or gpu.pool) for gpu in cards
        )

    def _by_rule(self, labels: Mapping[str, str], gpu: Gpu) -> str | None:
        return next((rule.name for rule in self.rules if rule.has(labels, gpu)), None)

    def _named(self, node: NodeObject, cards: Sequence[Gpu], notes: list[str]) -> dict[str, str]:
        """Return pools by card uuid, from the annotation."""
        key = f"{self.domain}/{CARDS_OF_POOLS}"
        text = (node.metadata.annotations or {}).get(key, "")
        if not text.strip():
            return {}
        fix = 'write JSON of pools and their cards, such as {"training": ["0", "1"]}, each card once'
        try:
            pools = msgspec.json.decode(text, type=dict[str, list[str]])
        except (msgspec.MsgspecError, RecursionError):
            raise invalid_annotation(key, text, fix) from None
        there = {gpu.uuid: gpu.uuid for gpu in cards} | {str(gpu.index): gpu.uuid for gpu in cards}
        found: dict[str, str] = {}
        for pool, listed in pools.items():
            if not pool.strip() or set(pool) & set(",|="):
                raise invalid_annotation(key, pool, "write the name of a pool without ',', '|' and '='")
            for card in map(str.strip, listed):
                uuid = there.get(card)
                if uuid is None:
                    notes.append(f"{key}: this node has no card {card!r} for pool {pool}")
                elif found.setdefault(uuid, pool) != pool:
                    raise invalid_annotation(key, card, f"it is in {found[uuid]} and in {pool}; name one pool")
        return found


NO_POOLS = CardPools()
"""No rules: only annotations and labels count."""
