"""The cards of a node as HAMi's agent tells them in its annotations."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ullage.kube.client.objects import Node as NodeObject
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.wire.hami.node import CORDON, HANDSHAKE, REGISTER, cordoned, read_cordon, read_handshake, read_register
from ullage.wire.hami.words import NVIDIA, Words


@dataclass(frozen=True, slots=True)
class RegisteredCards:
    """A reader of the register; `now` is the time in seconds since 1970.

    Where the agent is silent and the kubelet offers no cards either, they are gone. A list of cordoned cards that
    cannot be read keeps new work off all of them.
    """

    words: Words = NVIDIA
    now: Callable[[], float] = time.time

    @property
    def vendor(self) -> str:
        """Of whose cards alone it tells."""
        return self.words.vendor

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
