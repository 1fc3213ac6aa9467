"""Dependencies: what has to happen to other sessions before a session gets executors."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from ullage.model.error import invalid
from ullage.model.name import check_name
from ullage.model.nearest import did_you_mean

MAX_DEPENDENCIES = 1000


class DependencyKind(StrEnum):
    """What has to happen to the other session.

    `ok`: it ends and all its tasks succeeded. `fail`: it ends in another way. `end`: it ends. `start`: one of its tasks
    starts.
    """

    OK = "ok"
    END = "end"
    FAIL = "fail"
    START = "start"


_FORM = "write ok:ID, end:ID, fail:ID or start:ID"
OF_SLURM = {"afterok": "ok", "afterany": "end", "afternotok": "fail", "after": "start"}
"""Kinds by their names in Slurm."""


class Dependency(NamedTuple):
    """One dependency of a session on another one."""

    kind: DependencyKind
    session: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.session}"

    @property
    def meaning(self) -> str:
        """What it waits for, as a sentence uses it: `the success of prep`."""
        noun = {
            DependencyKind.OK: "the success",
            DependencyKind.END: "the end",
            DependencyKind.FAIL: "the failure",
            DependencyKind.START: "the start",
        }[self.kind]
        return f"{noun} of {self.session}"


def parse_dependency(text: str) -> Dependency:
    """Return the dependency of `ok:ID`.

    Raises:
        InvalidRequest: the kind is not known, or the id is no name.

    """
    kind, colon, session = text.strip().partition(":")
    if not colon:
        raise invalid("after", text, _FORM)
    if kind not in [str(each) for each in DependencyKind]:
        meant = OF_SLURM.get(kind)
        hint = did_you_mean(kind, list(DependencyKind)) if meant is None else f"did you mean {meant}:{session}? "
        raise invalid("after", text, f"{hint}{_FORM}")
    return Dependency(DependencyKind(kind), check_name("after", session))


def parse_dependencies(texts: list[str]) -> tuple[Dependency, ...]:
    """Return the dependencies of these texts, each once; one text may have several, separated by commas.

    Raises:
        InvalidRequest: as `parse_dependency`, or there are too many.

    """
    found = dict.fromkeys(parse_dependency(each) for text in texts for each in text.split(","))
    if len(found) > MAX_DEPENDENCIES:
        raise invalid("after", len(found), f"at most {MAX_DEPENDENCIES} sessions are possible")
    return tuple(found)
