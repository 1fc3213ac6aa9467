"""HAMi's words: what its pods ask, what its agents tell of cards, and what it writes on pods; all pure."""

from ullage.wire.hami.containers import ContainerAsk, container_asks
from ullage.wire.hami.request import read_hami
from ullage.wire.hami.words import NVIDIA, Words

__all__ = ["NVIDIA", "ContainerAsk", "Words", "container_asks", "read_hami"]
