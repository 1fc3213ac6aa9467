"""Tables of the victims of a preemption."""

from __future__ import annotations

from collections import Counter

from ullage.cli.output import DATA, Column, print_data, print_list
from ullage.cli.parts import show_tflops
from ullage.cli.size import show_size
from ullage.model.counted import counted
from ullage.wire.preemption import AttemptBody, FreedAmountsBody, NominationBody, PreemptionBody, VictimBody


def _freed_amounts(victim: VictimBody) -> str:
    """Return text such as `60 TFLOPS and 20Gi of 2 cards`; equal amounts are counted."""
    amounts = Counter(map(_amount, victim.gives))
    return ", ".join(f"{amount} of {counted(count, 'card')}" for amount, count in amounts.items())


def _amount(gives: FreedAmountsBody) -> str:
    if gives.compute_gflops is None or gives.vram_bytes is None:
        return "part"
    return f"{show_tflops(gives.compute_gflops)} TFLOPS and {show_size(gives.vram_bytes)}"


def _outcome(attempt: AttemptBody) -> str:
    if attempt.reason is not None:
        return attempt.reason.text
    return f"takes {len(attempt.victims)}, the highest of priority {attempt.cost.highest if attempt.cost else 0}"


_VICTIMS = (
    Column("VICTIM", lambda victim: victim.uid),
    Column("NAMESPACE", lambda victim: victim.namespace),
    Column("PRIORITY", lambda victim: victim.priority),
    Column("GIVES", _freed_amounts),
    Column("WHY", lambda victim: victim.reason.text),
    Column("UUIDS", lambda victim: ",".join(gives.uuid for gives in victim.gives), wide=True),
)
_ATTEMPTS = (
    Column("NODE", lambda attempt: attempt.node),
    Column("COULD GO", lambda attempt: attempt.eligible),
    Column("SHIELDED", lambda attempt: ", ".join(f"{n} {why}" for why, n in attempt.shielded.items())),
    Column("OUTCOME", _outcome),
)


def print_preemption(found: PreemptionBody, output: str) -> None:
    """Print the victims, or that none helps, and the attempt on each node."""
    if found.node is None:
        print("no eviction makes it fit")
    else:
        print(f"would fit on node {found.node} without these:\n")
        print_list(found.victims, _VICTIMS, output)
    print()
    print_list(found.attempts, _ATTEMPTS, output)


def print_leaving(nomination: NominationBody, output: str) -> None:
    """Print the victims that leave for a request."""
    if output in DATA:
        print_data(nomination, output)
        return
    print(f"{nomination.uid}: nominated to node {nomination.node}; repeat the command when these are freed\n")
    print_list(nomination.victims, _VICTIMS, output)
