"""The cards that this node offers, and the source that decided it.

The order is: configuration, then CUDA_VISIBLE_DEVICES, then NVML, then none. The first source with a value decides
alone, and NVML adds its facts about the chosen cards. A card that it does not know is declared: it has a name, no
facts (`model` is None) and no vendor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ullage.inventory.identifier import MAX_CARDS, SLICE, declare, is_card, match_cards
from ullage.inventory.nvml import CardReader, CardsUnreadable
from ullage.model.counted import counted
from ullage.model.error import InvalidRequest, invalid
from ullage.model.gpu import Gpu

VARIABLE = "CUDA_VISIBLE_DEVICES"

Source = Literal["configuration", "environment", "nvml", "none"]
Override = int | tuple[str, ...] | None
"""A count of cards, the ids (indexes or UUIDs) of the cards, or None if the operator sets nothing."""

_FIELD = "node.gpus"
_SHOWN = 60
"""Characters of an untrusted text that a note quotes."""


@dataclass(frozen=True, slots=True)
class Detection:
    """The cards, the source that decided, and one sentence with the reason."""

    gpus: tuple[Gpu, ...]
    source: Source
    note: str


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer of NVML: `cards` is None when it cannot be read, and `reason` says why."""

    cards: tuple[Gpu, ...] | None
    reason: str = ""


def detect(override: Override, environment: Mapping[str, str], nvml: CardReader, *, node: str) -> Detection:
    """Return the cards of the node called `node`, which makes the names of declared cards unique.

    Raises:
        InvalidRequest: `override` is not a count of 0..1024 or a list of distinct card ids, or an id
            is the beginning of several UUIDs.

    """
    _check(override)
    if override in (0, ()):
        # The driver is not called, so a machine with a hanging driver can still be used.
        return Detection((), "configuration", "No cards: the configuration has none.")
    if isinstance(override, int):
        return _counted(override, _ask(nvml), node)
    if override is not None:
        return _listed(override, _ask(nvml), node)
    value = environment.get(VARIABLE)
    if value is not None:
        return _visible(value, _ask(nvml), node)
    answer = _ask(nvml)
    if answer.cards is None:
        note = f"No cards: nothing is configured, {VARIABLE} is not set and NVML cannot be read ({answer.reason})."
        return Detection((), "none", note)
    return Detection(answer.cards, "nvml", f"{_cards(len(answer.cards))}: NVML lists them all.")


def _check(override: object) -> None:
    """Refuse a value that is not a valid `Override`. Raises InvalidRequest."""
    if override is None:
        return
    if isinstance(override, int) and not isinstance(override, bool):
        if not 0 <= override <= MAX_CARDS:
            raise invalid(_FIELD, override, f"write a count of 0 to {MAX_CARDS} cards")
        return
    if not isinstance(override, tuple):
        raise invalid(_FIELD, override, "write a count such as 2, or a list of card ids")
    if len(override) > MAX_CARDS:
        raise invalid(_FIELD, override, f"write at most {MAX_CARDS} card ids")
    for text in override:
        _check_id(text)
    if len(set(override)) < len(override):
        raise _named_twice(override)


def _check_id(text: object) -> None:
    if isinstance(text, str) and text.startswith(SLICE):
        raise invalid(_FIELD, text, "name the whole card; a MIG slice is a part of one")
    if not isinstance(text, str) or not is_card(text):
        raise invalid(_FIELD, text, "write an index such as 0 or a UUID such as GPU-8932f937")


def _named_twice(ids: tuple[str, ...]) -> InvalidRequest:
    return invalid(_FIELD, ids, "name each card once")


def _counted(count: int, answer: _Answer, node: str) -> Detection:
    """Return the first `count` cards, with declared ones for those that NVML does not list."""
    known = (answer.cards or ())[:count]
    missing = range(len(known), count)
    gpus = known + tuple(declare(str(index), node, index) for index in missing)
    note = f"{_cards(count)}: the configuration has {count}"
    if answer.cards is None:
        note += f", all declared because NVML cannot be read ({answer.reason})"
    elif missing:
        note += f", {len(missing)} of them declared because NVML lists only {len(known)}"
    return Detection(gpus, "configuration", note + ".")


def _listed(ids: tuple[str, ...], answer: _Answer, node: str) -> Detection:
    """Return the cards that the operator names; one that NVML lacks is kept, but unhealthy."""
    gpus = tuple(_configured(text, position, answer.cards, node) for position, text in enumerate(ids))
    if len({gpu.uuid for gpu in gpus}) < len(gpus):
        raise _named_twice(ids)
    note = f"{_cards(len(gpus))}: configuration names {'it' if len(gpus) == 1 else 'them'}"
    if answer.cards is None:
        return Detection(gpus, "configuration", f"{note}, declared because NVML cannot be read ({answer.reason}).")
    absent = [text for text in ids if not match_cards(text, answer.cards)]
    if absent:
        note += f", but NVML does not list {_shorten(', '.join(absent))}"
    return Detection(gpus, "configuration", note + ".")


def _configured(text: str, position: int, cards: tuple[Gpu, ...] | None, node: str) -> Gpu:
    if cards is None:
        return declare(text, node, position)
    found = match_cards(text, cards)
    if len(found) > 1:
        raise invalid(_FIELD, text, "several cards begin so; write more of the UUID")
    return next(iter(found), None) or declare(text, node, position, healthy=False)


def _visible(value: str, answer: _Answer, node: str) -> Detection:
    """Return the cards of CUDA_VISIBLE_DEVICES, read as CUDA reads it.

    Blanks around an entry do not count. The first invalid entry ends the list: one that is empty or -1, or, when NVML
    answers, one that matches no card or several. An empty value names no cards. A repeated card counts once (CUDA does
    not document its behaviour for repeats). A MIG slice is a valid entry but not a whole card, so it is skipped.
    """
    chosen: dict[str, Gpu] = {}
    slices = 0
    reasons = []
    for text in map(str.strip, value.split(",")):
        if text.startswith(SLICE):
            slices += 1
            continue
        gpu = _shown(text, len(chosen), answer.cards, node)
        if gpu is None:
            reasons = [f"the list ends at {_shorten(repr(text))}, which is not one card"] if value.strip() else []
            break
        chosen.setdefault(gpu.uuid, gpu)
    if slices:
        reasons.append(f"{counted(slices, 'MIG slice is', 'MIG slices are')} not counted as cards")
    if answer.cards is None and chosen:
        reasons.append(f"declared because NVML cannot be read ({answer.reason})")
    note = f"{_cards(len(chosen))}: {VARIABLE} is {_shorten(repr(value))}"
    return Detection(tuple(chosen.values()), "environment", "; ".join([note, *reasons]) + ".")


def _shown(text: str, position: int, cards: tuple[Gpu, ...] | None, node: str) -> Gpu | None:
    """Return the one card of an entry, or None if the entry is invalid."""
    if cards is None:
        return declare(text, node, position) if is_card(text) else None
    found = match_cards(text, cards)
    return found[0] if len(found) == 1 else None


def _ask(nvml: CardReader) -> _Answer:
    try:
        return _Answer(nvml.cards())
    except CardsUnreadable as error:
        return _Answer(None, error.message)


def _cards(count: int) -> str:
    return counted(count, "card") if count else "No cards"


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
