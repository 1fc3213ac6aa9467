"""The cards that HAMi's agent registers in the annotations of a node."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ullage.kube.client.objects import KubeNode as NodeObject
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.wire.hami.node import CORDON, HANDSHAKE, REGISTER, cordoned, read_cordon, read_handshake, read_register
from ullage.wire.hami.vendor import NVIDIA, HamiVendor


@dataclass(frozen=True, slots=True)
class RegisteredCards:
    """A reader of HAMi's card register. `now` returns seconds since 1970.

    The cards are gone if the agent is silent and the kubelet offers no cards either. If the list of cordoned cards
    cannot be parsed, all cards of the node are cordoned.
    """

    words: HamiVendor = NVIDIA
    now: Callable[[], float] = time.time

    @property
    def vendor(self) -> str:
        """The only vendor whose cards the register lists."""
        return self.words.name

    def __call__(self, node: NodeObject) -> Sequence[Gpu] | None:
        """Return the cards of a node; None where no agent has registered any.

        Raises:
            InvalidRequest: the register cannot be read.

        """
        annotations = node.metadata.annotations or {}
        if REGISTER not in annotations:
            return None
        offered = (node.status.allocatable or {}).get(self.words.count, "0")
        if offered == "0" and read_handshake(annotations.get(HANDSHAKE, "")).overdue(self.now()):
            return ()
        cards = tuple(card.gpu for card in read_register(annotations[REGISTER], self.words))
        try:
            return cordoned(cards, read_cordon(annotations.get(CORDON, "")))
        except InvalidRequest:
            return tuple(replace(card, cordoned=True) for card in cards)
