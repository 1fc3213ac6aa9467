"""Bodies of requests to `/compute-resources` and `/gpus`, read and checked completely before anything is changed."""

from __future__ import annotations

from collections.abc import Iterable, Sized

import msgspec
from msgspec import field, structs

from ullage.model.compute import AppKey, ComputeRequirement, Pick
from ullage.model.compute_result import AppDemand
from ullage.model.error import invalid
from ullage.model.quantity import MAX_INT64, check_amount
from ullage.model.resources import MILLI
from ullage.wire.gpubinding import read_memory
from ullage.wire.kubernetes_quantity import parse_quantity

MAX_BODY = 2**20
"""Bytes of the largest body."""
MAX_DEMANDS = 64
MAX_CARDS = 1024
MAX_TEXT = 256
"""Bytes of the longest name."""


class _RequestBody(msgspec.Struct, frozen=True, rename="camel"):
    """The base of all bodies; unknown keys are ignored."""


class SelectionBody(_RequestBody, frozen=True):
    """A chosen card; `memory` is bytes."""

    node_name: str = ""
    device_id: str = ""
    memory: int | None = None


class BindingBody(_RequestBody, frozen=True):
    """Chosen cards, and for an installation the chosen mode."""

    compute_binding: list[SelectionBody] | None = None
    mode: str = ""

    def picks(self) -> tuple[Pick, ...]:
        chosen = []
        check_count(self.compute_binding, "computeBinding")
        for position, each in enumerate(self.compute_binding or ()):
            path = f"computeBinding[{position}]"
            check_text(each.node_name, f"{path}.nodeName")
            check_text(each.device_id, f"{path}.deviceId")
            check_amount(each.memory or 0, f"{path}.memory", MAX_INT64)
            chosen.append(Pick(each.node_name, each.device_id, each.memory or 0))
        return tuple(chosen)


class SupportTypeBody(_RequestBody, frozen=True):
    """How a card is to be shared."""

    support_type: str


class UpkeepBody(_RequestBody, frozen=True):
    """Whether the changes are only reported, and not made."""

    dry_run: bool = True


class DemandBody(msgspec.Struct, frozen=True):
    """An application to be installed; amounts are quantities."""

    id: str
    application: str
    owner: str
    mode: str
    cpu_milli: str = field(name="requiredCPU")
    gpu_bytes: str = field(name="requiredGPU")
    gpu_limit_bytes: str = field(name="limitedGPU")
    memory_bytes: str = field(name="requiredMemory")
    memory_limit_bytes: str = field(name="limitedMemory")
    disk_bytes: str = field(name="requiredDisk")
    app_id: str = field(name="appId", default="")
    several_cards: bool = field(name="supportMultiCards", default=False)
    several_nodes: bool = field(name="supportMultiNodes", default=False)

    def demand(self, path: str) -> AppDemand:
        """Return the demand as a value; `path` is where it stands in the body."""
        for name in ("id", "application", "owner", "mode"):
            check_text(getattr(self, name), f"{path}.{name}", needed=True)
        check_text(self.app_id, f"{path}.appId")
        texts, amounts = {name: getattr(self, name) for name in _AMOUNTS}, dict[str, int]()
        for name, shown in _AMOUNTS.items():
            here, units = f"{path}.{shown}", MILLI if name == "cpu_milli" else 1
            amounts[name] = parse_quantity(check_text(texts[name], here), here, units=units)
        for limit, required in (("gpu_limit_bytes", "gpu_bytes"), ("memory_limit_bytes", "memory_bytes")):
            if 0 < amounts[limit] < amounts[required]:
                fix = f"it is below {_AMOUNTS[required]}; raise it, or write 0"
                raise invalid(f"{path}.{_AMOUNTS[limit]}", texts[limit], fix)
        requirement = ComputeRequirement(
            self.mode, **amounts, several_cards=self.several_cards, several_nodes=self.several_nodes
        )
        return AppDemand(self.id, AppKey(self.application, self.owner), requirement)


_AMOUNTS = {
    each.name: each.encode_name for each in structs.fields(DemandBody) if each.name.endswith(("_milli", "_bytes"))
}
"""The amounts of a demand, with their names in the body."""


class PreflightBody(_RequestBody, frozen=True):
    """Demands that are to be placed one after the other."""

    demands: list[DemandBody]

    def values(self) -> tuple[AppDemand, ...]:
        if not 0 < len(self.demands) <= MAX_DEMANDS:
            raise invalid("demands", len(self.demands), f"1 to {MAX_DEMANDS} demands can be made at once")
        found = tuple(each.demand(f"demands[{position}]") for position, each in enumerate(self.demands))
        check_unique((each.id for each in found), "demands", "id")
        return found


class ShareModeBody(_RequestBody, frozen=True):
    """How a card is to be shared, as a number."""

    mode: int | str


class CardBody(_RequestBody, frozen=True):
    """A card by its id; `memory` counts MiB."""

    id: str
    memory: int | str | None = None


class AssignBody(_RequestBody, frozen=True):
    """An application that is to get a card, or to lose it; `memory` counts MiB."""

    app_name: str
    memory: int | str | None = None


class BulkAssignBody(_RequestBody, frozen=True):
    """Cards that an application is to get, and cards that it is to lose."""

    app_name: str
    assign: list[CardBody] | None = None
    unassign: list[CardBody] | None = None


def card_bytes(memory: int | str | None) -> int:
    """Return the bytes of an amount of memory in MiB; None and 0 give 0."""
    return 0 if memory in (None, 0, "", "0") else read_memory(memory, "memory") or 0


def check_text(text: str, field: str, *, needed: bool = False) -> str:
    """Return the text if it is not too long."""
    if len(text.encode("utf-8", "replace")) > MAX_TEXT or (needed and not text):
        raise invalid(field, text, f"1 to {MAX_TEXT} bytes of text are needed")
    return text


def check_count(items: Sized | None, field: str) -> None:
    """Refuse more cards than an application may have."""
    if items is not None and len(items) > MAX_CARDS:
        raise invalid(field, len(items), f"at most {MAX_CARDS} cards can be named at once")


def check_unique(texts: Iterable[str], field: str, key: str) -> None:
    seen = set()
    for text in texts:
        if text in seen:
            raise invalid(f"{field}.{key}", text, "it is there twice; each needs its own")
        seen.add(text)
