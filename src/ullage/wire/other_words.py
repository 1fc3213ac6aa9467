"""Known annotations of a pod that are not read on it, because it uses another dialect, or requests no cards."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.wire.dialect import ASKED, TENSOR_FUSION, PodSettings
from ullage.wire.document import Document, mapping
from ullage.wire.hami.words import Words
from ullage.wire.pod.card_topology import TOPOLOGY_KEYS
from ullage.wire.pod.request import Dialect, PodRequest

_OF_CARDS = (
    *("partition-id", "eviction-protection", *TOPOLOGY_KEYS),
    *(name for name in ASKED if name.startswith("gang-")),
)
"""Annotations that mean nothing on a pod without cards, and request none."""

_NOT_WITH_HAMI = ("partition-id",)
"""Annotations that are not read on a pod with a request in HAMi's dialect."""


def other_words(pod: Document, asked: PodRequest | None, settings: PodSettings) -> Iterator[str]:
    """Yield a sentence per such annotation; `asked` is the request of the pod, None for no cards."""
    metadata = mapping(pod.get("metadata"), "metadata")
    there = mapping(metadata.get("annotations"), "metadata.annotations")
    for key, why in {**_of_hami(asked, settings), **_of_domains(asked, settings.domain)}.items():
        if key in there:
            yield f"metadata.annotations.{key} has no effect: {why}"


def _of_hami(asked: PodRequest | None, settings: PodSettings) -> dict[str, str]:
    read = _words_of(asked)
    heard = () if read is None else read.annotations()
    found: dict[str, str] = {}
    for words in settings.hami if asked is None or asked.dialect in (Dialect.PLAIN, Dialect.HAMI) else ():
        why = "the pod asks for no cards"
        if asked is not None:
            why = f"it is for cards of {words.vendor}, the pod asks for those of {_vendors(asked)}"
        found |= {key: why for key in words.annotations() if key not in heard}
    return found


def _words_of(asked: PodRequest | None) -> Words | None:
    if asked is None or asked.dialect is not Dialect.HAMI or asked.devices is None:
        return None
    return asked.devices.words


def _of_domains(asked: PodRequest | None, domain: str) -> dict[str, str]:
    domains = dict.fromkeys((domain, TENSOR_FUSION))
    if asked is None:
        return {f"{each}/{name}": "the pod asks for no cards" for each in domains for name in _OF_CARDS}
    found = {
        f"{each}/{name}": f"the pod is read by the words of {asked.domain}; write {asked.key(name)}"
        for each in domains
        if each != asked.domain
        for name in ASKED
    }
    if asked.dialect is Dialect.HAMI:
        why = "the pod asks in the words of HAMi, which name no partition"
        found |= {asked.key(name): why for name in _NOT_WITH_HAMI}
    return found


def _vendors(asked: PodRequest) -> str:
    return ", ".join(asked.requirement.cards.vendors) or "another vendor"
