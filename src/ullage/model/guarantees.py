"""Guarantees of queues that all nodes together cannot meet. They are accepted: nodes may come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ullage.model.queue import ROOT, Limit, Queue
from ullage.model.resources import Resources


def unmet_guarantees(queues: Iterable[Queue], total: Resources) -> dict[str, list[str]]:
    """Return a sentence for each queue whose guarantee, or the sum of all, is more than what all nodes have.

    Without nodes there is nothing to compare with.
    """
    known, there = list(queues), Limit(*total)
    if not total:
        return {}
    largest = Resources()
    found: dict[str, list[str]] = {}
    for queue in known:
        largest = largest.max(queue.guarantee)
        broken = there.broken_by(queue.guarantee)
        if broken != Limit():
            text = f"queue {queue.name} is guaranteed {broken.part_of(queue.guarantee)}"
            found[queue.name] = [f"{text}; all nodes together have {broken}"]
    whole = _guaranteed(known)
    pairs = zip(there.broken_by(whole), there.broken_by(largest), strict=True)
    together = Limit(*(most if alone is None else None for most, alone in pairs))
    text = f"all queues together are guaranteed {together.part_of(whole)}; all nodes together have {together}"
    for queue in known:
        if any(amount and most is not None for amount, most in zip(queue.guarantee, together, strict=True)):
            found.setdefault(queue.name, []).append(text)
    return found


def distinct(sentences: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return each sentence once, in order."""
    return tuple(dict.fromkeys(text for texts in sentences.values() for text in texts))


def _guaranteed(queues: Iterable[Queue]) -> Resources:
    """Return what all queues are guaranteed together; a queue has at least what those below it have."""
    children: dict[str, list[Queue]] = {}
    for queue in queues:
        children.setdefault(queue.parent, []).append(queue)

    def below(name: str) -> Resources:
        return sum((queue.guarantee.max(below(queue.name)) for queue in children.get(name, ())), Resources())

    return below(ROOT)
