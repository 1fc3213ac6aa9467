"""The ids under which the books have a pod: one for each family of which it has cards, the uid of the pod first."""

from __future__ import annotations

MOST_FAMILIES = 4
"""The most families of which one pod has cards."""

_MARK = "#"


def family_id(uid: str, number: int) -> str:
    """Return the id of a pod's cards of one of its families; the first of them (0) has the uid of the pod."""
    return f"{uid}{_MARK}{number}" if uid and number else uid


def family_ids(uid: str) -> tuple[str, ...]:
    """Return all ids that a pod may have in the books."""
    return (uid, *further_ids(uid))


def further_ids(uid: str) -> tuple[str, ...]:
    """Return the ids that only a pod with cards of several families has."""
    return tuple(f"{uid}{_MARK}{number}" for number in range(1, MOST_FAMILIES))


def uid_of(id_: str) -> str:
    """Return the uid of the pod that has an id."""
    return id_.partition(_MARK)[0]
