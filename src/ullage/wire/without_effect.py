"""Annotations and resources of a pod that have no effect because another one of the pod overrides them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ullage.wire.document import Document, mapping, section, text
from ullage.wire.hami.words import Words
from ullage.wire.kubernetes_quantity import is_nothing
from ullage.wire.pod.containers import containers_of


def without_effect(pod: Document, vendors: Iterable[Words], split: Iterable[str] = ()) -> Iterator[str]:
    """Yield a sentence per such key. `split` are the containers between which cards are to be split, by name."""
    spec = section(pod, "spec")
    there = list(containers_of(spec))
    names = {text(container.get("name")) for _, _, container in there}
    for name in sorted(set(split) - names):
        yield f"container-gpu-count: no container of the pod is called {name}; its cards go to no container"
    for words in vendors:
        for _, path, container in there:
            yield from _amounts(words, f"{path}.resources", mapping(container.get("resources"), f"{path}.resources"))


def _amounts(words: Words, path: str, resources: Document) -> Iterator[str]:
    """Yield a sentence per amount of one container that has no effect."""
    said: dict[str, object] = {}
    for kind in ("requests", "limits"):  # limits count before requests
        said |= mapping(resources.get(kind), f"{path}.{kind}")
    asked = [name for name in words.amounts if not is_nothing(said.get(name))]
    if words.count in said and is_nothing(said[words.count]):
        for name in asked:
            yield f"{path}: {name} has no effect, the container asks for 0 {words.count}: ask for 1, or leave both out"
    elif words.memory in asked and words.memory_percentage in asked:
        yield f"{path}: {words.memory_percentage} has no effect where {words.memory} says the memory; keep one of both"
