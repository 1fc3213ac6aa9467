"""The tables of vendors from their files, and the annotations that the chart's webhook watches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from docs.markdown import table
from ullage.wire.dialect import REQUEST_ANNOTATIONS, PodSettings
from ullage.wire.hami.results import node_keys, result_keys
from ullage.wire.vendors.container_request import WHOLE
from ullage.wire.vendors.family import Family, VendorFile
from ullage.wire.vendors.load import shipped
from ullage.wire.vendors.shipped import FAMILIES

CHART = Path(__file__).parent.parent / "charts" / "ullage" / "files" / "vendors.json"


def chart_keys() -> str:
    """Return the annotations of all families, by what the webhook does with them, as JSON."""
    requests = sorted(key for key in PodSettings().annotations if not key.startswith(_OWN))
    both = [(each.results.allocated, each.results.to_allocate) for each in FAMILIES]
    found = {
        "results": list(result_keys(FAMILIES)),
        "own": list(REQUEST_ANNOTATIONS),
        "requests": requests,
        "nodes": list(node_keys(FAMILIES)),
        "allocated": [allocated for allocated, _ in both],
        "toAllocate": [{"allocated": allocated, "key": key} for allocated, key in both if key],
    }
    return json.dumps(found, indent=2) + "\n"


_OWN = ("ullage.io/", "tensor-fusion.ai/")


def write_chart_keys() -> Path:
    """Write the file of the chart."""
    CHART.parent.mkdir(exist_ok=True)
    CHART.write_text(chart_keys())
    return CHART


def vendors() -> str:
    """Return a section for each vendor: its words and units, its slices, and what is not offered."""
    with_words = [vendor for vendor in shipped() if vendor.family]
    return "\n".join("\n".join(_section(vendor)) for vendor in with_words)


def _section(vendor: VendorFile) -> Iterator[str]:
    yield f"## {vendor.vendor}\n"
    for group in _with_equal_rules(vendor.family):
        (first, *_), words = group, ", ".join(f"`{family.word}`" for family in group)
        by_word = f", where `WORD` is one of {words}" if len(group) > 1 else ""
        yield f"Cards of {_listed(family.name for family in group)}{by_word}:\n"
        yield table(("what", "key", "meaning"), _rows(first if len(group) == 1 else _generic(first))) + "\n"
    sliced = [family for family in vendor.family if family.templates]
    if sliced:
        yield table(("slice", "of", "MiB", "cores"), _templates(sliced)) + "\n"
    if vendor.plain:
        yield f"Whole cards of other plugins: {_listed(vendor.plain)}.\n"
    if vendor.not_offered:
        yield "Not offered:\n"
        yield from (f"- {each}" for each in vendor.not_offered)
        yield ""


def _with_equal_rules(families: Iterable[Family]) -> list[list[Family]]:
    """Return the families, those together that differ in their words and slices only."""
    found: dict[str, list[Family]] = {}
    for family in families:
        found.setdefault(json.dumps(list(_rows(_generic(family)))), []).append(family)
    return list(found.values())


def _generic(family: Family) -> Family:
    """Return a family with WORD in place of its word."""
    raw = msgspec.to_builtins(structs.replace(family, templates=()))
    made: Family = msgspec.convert(json.loads(json.dumps(raw).replace(family.word, "WORD")), Family)
    return made


def _rows(family: Family) -> Iterator[tuple[str, str, str]]:
    own, mark = family.resources, family.annotations
    yield "cards", f"`{own.count}`", _count(family)
    if own.memory:
        yield "memory", f"`{own.memory}`", _memory(family)
    if own.percent:
        yield "memory", f"`{own.percent}`", "percent of each card"
    if own.cores:
        yield "cores", f"`{own.cores}`", _cores(family)
    if own.priority:
        yield "priority", f"`{own.priority}`", "0, or 1 (lower)"
    for what, keys in (
        ("model", (mark.use_type, mark.nouse_type)),
        ("cards", (*mark.use_uuid, *mark.nouse_uuid)),
        ("zone", (mark.numa_bind,)),
    ):
        if any(keys):
            yield what, _listed(filter(None, keys)), "annotations of a pod"
    if mark.mode:
        modes = ", ".join(f"`{mode}` ({isolation})" for mode, isolation in family.modes.items())
        yield "mode", f"`{mark.mode}`", modes
    if family.classes is not None:
        yield "class", f"`{family.classes.annotation}`", _listed(family.classes.values)
    yield "register", _register(family), _parts(family)
    if family.lock.annotation:
        owner = "time, namespace and pod" if family.lock.format == "owner" else "the time alone"
        yield "lock of the node", f"`{family.lock.annotation}`", owner
    yield "written", _listed(family.result_keys), _results(family)


def _count(family: Family) -> str:
    rule = family.count
    if rule.means == "slice":
        return "the size of one slice"
    said = ["cards of a container"]
    if rule.default:
        said.append(f"{rule.default} if only amounts are stated")
    if rule.allowed:
        said.append(f"one of {', '.join(map(str, rule.allowed))}")
    if rule.step > 1:
        said.append(f"1 counts as {rule.step}, else a multiple of {rule.step}")
    return "; ".join(said)


def _memory(family: Family) -> str:
    rule = family.memory
    unit = "MiB" if rule.unit_mib == 1 else f"units of {rule.unit_mib} MiB"
    rounding = {
        "any": "",
        "templates": ", rounded up to a slice",
        "profiles": ", rounded up to a profile of the node; MiB where it is more than twice the largest one",
        "steps": f", rounded up to {', '.join(map(str, rule.sizes))}",
        "listed": f", one of {', '.join(map(str, rule.sizes))}",
    }
    return (
        f"{unit} of each card{rounding[rule.amounts]}{'; or a size such as 4Gi' if rule.with_unit == 'bytes' else ''}"
    )


def _cores(family: Family) -> str:
    rule = family.cores
    unit = "percent of each card" if rule.per_card == WHOLE else f"of {rule.per_card} of a card"
    said = [f"{rule.per_card} are those of one card, and an amount may be of several" if rule.over_cards else unit]
    if rule.default:
        said.append(f"{rule.default} if none are stated")
    if rule.of_several:
        said.append(f"{rule.of_several} of each of several cards")
    if rule.modes:
        said.append(f"with the mode {_listed(rule.modes)} only")
    return "; ".join(said)


def _register(family: Family) -> str:
    rule = family.register
    keys = [rule.annotation] if rule.annotation else [rule.cards, rule.memory, rule.cores]
    return _listed(filter(None, [*keys, rule.handshake]))


def _parts(family: Family) -> str:
    kind = "capacity of the node" if family.register.format == "capacity" else "annotation of the node"
    return f"{kind}; cards are held whole" if family.parts == "none" else f"{kind}; parts are {family.parts}"


def _results(family: Family) -> str:
    rule = family.results
    kind = "model" if rule.type == "model" else f"`{family.word}`"
    memory = "MiB" if rule.memory == "asked" else str(rule.memory)
    units = {"asked": "cores", "units-of-card": "compute units", "mask": "cores as bits"}
    cores = str(rule.cores) if isinstance(rule.cores, int) else units[rule.cores]
    return f"UUID, {kind}, {memory}, {cores}"


def _templates(families: Iterable[Family]) -> Iterator[tuple[Any, ...]]:
    for family in families:
        for each in family.templates:
            yield f"`{each.name}`", family.name, each.memory_mib, each.cores


def _listed(keys: Iterable[str]) -> str:
    return ", ".join(f"`{key}`" for key in keys)
