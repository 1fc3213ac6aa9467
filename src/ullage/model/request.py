"""The requirement of one executor or one pod, and its text form `cpu=4,mem=16g,gpu=2`.

This is the only parser of that text: command line, configuration, SDK and every server call it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ullage.model.affinity import ANY_NODE, NodeAffinity
from ullage.model.alignment import DEFAULT_ALIGNMENT, SEPARATOR, Alignment, LinkDemand, read_pair
from ullage.model.choice import parse_choice
from ullage.model.error import InvalidRequest, invalid
from ullage.model.nearest import did_you_mean
from ullage.model.part import ANY_CARD, CardSelector, Isolation, Part
from ullage.model.quantity import (
    MAX_INT32,
    MAX_INT64,
    PPM,
    format_bytes,
    format_decimal,
    is_whole,
    parse_bytes,
    parse_cpu,
    parse_decimal,
)
from ullage.model.resources import MILLI, Resources, show_milli
from ullage.model.topology import ZonePolicy

MAX_CARDS = 128
"""The most cards of one request for parts, or with conditions on cards."""

_ALIASES = {"memory": "mem", "gpu_models": "gpu_model", "gpu_indices": "gpu_index", "compute": "percent"}
_CONDITIONS = (
    *("vram", "tflops", "percent", "gpu_model", "gpu_vendor", "gpu_index", "pool", "isolation", "partition"),
    "slices",
    *("gpu_uuid", "not_gpu_uuid", "gpu_model_like", "not_gpu_model_like"),
)
_KEYS = ("cpu", "mem", "gpu", *_CONDITIONS, "numa", "links")
_OTHER_WORDS = {
    **dict.fromkeys(("core", "cores", "vcpu", "vcpus", "num_cpus"), "cpu"),
    **dict.fromkeys(("ram", "rss"), "mem"),
    **dict.fromkeys(("card", "cards", "device", "devices", "num_gpus"), "gpu"),
    **dict.fromkeys(("gpu_mem", "gpu_memory", "gpumem", "hbm"), "vram"),
}
_FORM = "write a comma list such as cpu=2,mem=4g,gpu=1"


def parse_amounts(text: str) -> dict[str, int]:
    """Return the amounts of a text: cpu (thousandths of a core), memory (bytes) and gpu (thousandths of a card)."""
    amounts: dict[str, int] = {}
    for key, value in _entries(text).items():
        if key in (*_CONDITIONS, "numa", "links") or SEPARATOR in key:
            raise invalid("resreq", f"{key}={value}", "only cpu, mem and gpu can be given here")
        amounts["memory" if key == "mem" else key] = _parse_amount(key, value)
    if "gpu" in amounts:
        amounts["gpu"] = -(-amounts["gpu"] * MILLI // PPM)
    return amounts


def _parse_amount(key: str, value: str) -> int:
    """Return thousandths of a core, bytes, or millionths of a card."""
    with _naming(key, value):
        if key == "gpu":
            return parse_decimal(value, key, MAX_INT32 * PPM)
        return parse_cpu(value) if key == "cpu" else parse_bytes(value)


def _entries(text: str) -> dict[str, str]:
    if not isinstance(text, str) or not text.strip():
        raise invalid("resreq", text, _FORM)
    pairs = []
    for entry in text.split(","):
        key, separator, value = (part.strip() for part in entry.partition("="))
        if not separator or not key or not value or "=" in value:
            raise invalid("resreq", entry, _FORM)
        pairs.append((key, value))
    return _unique(pairs)


def _unique(pairs: list[tuple[str, str]]) -> dict[str, str]:
    entries: dict[str, str] = {}
    for given, value in pairs:
        key = given if SEPARATOR in given else _ALIASES.get(given.lower(), given.lower())
        if key not in _KEYS and SEPARATOR not in key:
            fix = f"{_suggestion(key)}The keys are {', '.join(_KEYS)} (memory for mem)"
            raise invalid("resreq", f"{given}={value}", fix)
        if key in entries:
            raise invalid("resreq", f"{given}={value}", f"{key} is given twice; keep one")
        entries[key] = value
    return entries


def _suggestion(key: str) -> str:
    """Return the question for the key that is meant: a synonym, or a similar key."""
    other = _OTHER_WORDS.get(key)
    return did_you_mean(key, _KEYS) if other is None else f"did you mean {other}? "


@contextmanager
def _naming(key: str, value: str) -> Iterator[None]:
    """Prefix an error with the offending entry."""
    try:
        yield
    except InvalidRequest as error:
        entry = f"{key}={value}"
        raise InvalidRequest(f"resreq {entry!r}: {error.message}", field=error.field) from None


@dataclass(frozen=True, slots=True)
class ResourceRequirement:
    """One unit of placement: cores, bytes of memory, and cards of one node.

    Cards are held whole unless `part` says how much of each; `cards` are conditions on cards, `nodes` on nodes,
    `alignment` says how its CPUs and cards are kept in the same zones. The text form omits `nodes`, and the containers
    of `alignment`.

    Raises:
        InvalidRequest: a field is negative, too large or not an integer, nothing is asked, or a part
            or a condition is given without cards.

    """

    cpu_milli: int = 0
    memory_bytes: int = 0
    gpu_count: int = 0
    part: Part | None = None
    cards: CardSelector = ANY_CARD
    nodes: NodeAffinity = ANY_NODE
    alignment: Alignment = DEFAULT_ALIGNMENT

    def __post_init__(self) -> None:
        for field, value, maximum in (
            ("cpu", self.cpu_milli, MAX_INT64 * MILLI),
            ("memory", self.memory_bytes, MAX_INT64),
            ("gpu", self.gpu_count, MAX_INT32),
        ):
            if not is_whole(value):
                raise invalid(field, value, "a whole number is needed")
            if value < 0:
                raise invalid(field, value, "an amount cannot be negative; omit the key to request none")
            if value > maximum:
                raise invalid(field, value, f"at most {maximum} can be requested")
        if not (self.cpu_milli or self.memory_bytes or self.gpu_count):
            raise invalid("resreq", "cpu=0,mem=0,gpu=0", "request at least one of cpu, mem, gpu")
        if self.part is not None or self.cards != ANY_CARD:
            self._check_cards()
        if self.alignment.pairs and not self.gpu_count:
            raise invalid("gpu", 0, f"{self.alignment.pairs[0]} is about cards; request some, or leave it out")
        if self.alignment.links is not None and not self.gpu_count:
            raise invalid("gpu", 0, f"links={self.alignment.links} is about cards; request some, or leave it out")

    def _check_cards(self) -> None:
        if not 1 <= self.gpu_count <= MAX_CARDS:
            raise invalid("gpu", self.gpu_count, f"request 1 to {MAX_CARDS} cards, or leave out the conditions on them")
        indices = self.cards.indices
        if indices and len(indices) != self.gpu_count:
            raise invalid("gpu_index", indices, f"name as many as cards are requested ({self.gpu_count})")
        if self.part is None and self.cards.isolation is not Isolation.SHARED and self.cards.template is None:
            raise invalid("isolation", self.cards.isolation.value, "whole cards have none; request a part of a card")

    def check_not_empty(self, field: str = "resreq", otherwise: str = "leave them out for whole cards") -> None:
        """Refuse parts of cards without amounts: their holders would block requests for whole cards."""
        nothing = self.part is not None and self.part.is_empty
        if nothing and self.cards.isolation in (Isolation.SOFT, Isolation.HARD):
            fix = f"give tflops, percent or vram above 0, or {otherwise}"
            raise InvalidRequest(f"{field}: no amount of its cards is requested: {fix}", field=field)

    @classmethod
    def of(cls, cpu: int = 0, memory: int | str = 0, gpu: int = 0) -> ResourceRequirement:
        """Return a requirement of whole cores, bytes (or a size text) and whole cards."""
        for field, value in (("cpu", cpu), ("gpu", gpu)):
            if not is_whole(value):
                raise invalid(field, value, "a whole number is needed")
        if cpu > MAX_INT64:
            raise invalid("cpu", cpu, f"at most {MAX_INT64} can be requested")
        return cls(cpu * MILLI, parse_bytes(memory) if isinstance(memory, str) else memory, gpu)

    @classmethod
    def from_string(cls, text: str) -> ResourceRequirement:
        """Parse `cpu=4,mem=16g,gpu=2` or `cpu=500m,gpu=0.5`: keys of any case and order, blanks around them allowed."""
        return cls._from_entries(_entries(text))

    def filling(self, text: str) -> str:
        """Return the text of a request with what it leaves out of cores, memory and cards as in this requirement."""
        stated = _entries(text)
        about_cards = any(key not in ("cpu", "mem") for key in stated)
        rest = {
            key: value
            for key, value in _entries(str(self)).items()
            if key not in stated and (key in ("cpu", "mem") or not about_cards)
        }
        return ",".join(f"{key}={value}" for key, value in (stated | rest).items())

    @classmethod
    def from_value(cls, value: object) -> ResourceRequirement:
        """Accept a requirement, its text, or a mapping with the same keys."""
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            return cls.from_string(value)
        if isinstance(value, Mapping):
            return cls._from_entries(_unique([(str(key), str(amount)) for key, amount in value.items()]))
        raise invalid("resreq", value, _FORM)

    @classmethod
    def _from_entries(cls, entries: dict[str, str]) -> ResourceRequirement:
        amounts = {key: _parse_amount(key, entries[key]) for key in ("cpu", "mem", "gpu") if key in entries}
        asks_of_cards = any(key in _CONDITIONS for key in entries)
        gpus = amounts.get("gpu", PPM if asks_of_cards else 0)
        count, fraction = divmod(gpus, PPM)
        if fraction and count:
            raise invalid("gpu", entries["gpu"], "a part is of one card: write gpu=0.5, or whole cards such as gpu=2")
        part, cards = None, ANY_CARD
        if fraction or asks_of_cards:
            part = Part.from_entries(entries, fraction)
            cards = CardSelector.from_entries(entries, whole=part is None)
        alignment = _alignment(entries)
        cpu, memory, number = amounts.get("cpu", 0), amounts.get("mem", 0), 1 if fraction else count
        return cls(cpu, memory, number, part, cards=cards, alignment=alignment)

    @property
    def cpu(self) -> int:
        """The requested whole cores."""
        return self.cpu_milli // MILLI

    @property
    def memory(self) -> int:
        """The requested bytes of memory."""
        return self.memory_bytes

    @property
    def gpu(self) -> int:
        """The requested cards, whole or in part."""
        return self.gpu_count

    @property
    def resources(self) -> Resources:
        """The amounts this request charges to its node, queue and session.

        A part in TFLOPS or bytes counts here as whole cards; `Fleet.resources` has the exact amount.
        """
        share = MILLI if self.part is None else self.part.share_milli or MILLI
        return Resources(self.cpu_milli, self.memory_bytes, self.gpu_count * share)

    def aligned(self, policy: ZonePolicy | None) -> ResourceRequirement:
        """Return the requirement with a policy of zones, unless it has its own."""
        if policy is None or self.alignment.policy is not None or (policy is ZonePolicy.NONE and self.alignment.pairs):
            return self
        return replace(self, alignment=replace(self.alignment, policy=policy))

    def __str__(self) -> str:
        policy = self.alignment.policy
        numa = () if policy is None else (f"numa={policy}",)
        links = () if self.alignment.links is None else (f"links={self.alignment.links}",)
        return ",".join((self._amounts_text(), *numa, *links, *map(str, self.alignment.pairs)))

    def _amounts_text(self) -> str:
        head = f"cpu={show_milli(self.cpu_milli)},mem={format_bytes(self.memory_bytes)},gpu="
        if self.part is None:
            return f"{head}{self.gpu_count}{self.cards}"
        cards = f"{self.cards},isolation=shared" if self.cards.isolation is Isolation.SHARED else str(self.cards)
        if self.gpu_count == 1 and self.part.fraction_ppm:
            return f"{head}{format_decimal(self.part.fraction_ppm)}{cards}"
        nothing = "" if self.cards.isolation is Isolation.PARTITIONED else ",vram=0"
        return f"{head}{self.gpu_count}{str(self.part) or nothing}{cards}"

    @property
    def whole(self) -> bool:
        """Whether each card is held exclusively."""
        return self.gpu_count > 0 and self.cards.isolation is Isolation.SHARED

    @property
    def shares_cards(self) -> bool:
        """Whether it takes parts of cards whose rest others may have; hardware slices do not count."""
        return self.gpu_count > 0 and self.cards.isolation in (Isolation.SOFT, Isolation.HARD)


def _alignment(entries: Mapping[str, str]) -> Alignment:
    policy, links, pairs = None, None, []
    for key, value in entries.items():
        with _naming(key, value):
            if key == "numa":
                policy = parse_choice(ZonePolicy, value, "numa")
            elif key == "links":
                links = parse_choice(LinkDemand, value, "links")
            elif SEPARATOR in key:
                pairs.append(read_pair(key, value))
    found = Alignment(policy, pairs=tuple(sorted(pairs, key=lambda pair: pair.resource)), links=links)
    return DEFAULT_ALIGNMENT if found == DEFAULT_ALIGNMENT else found


DEFAULT_REQUIREMENT = ResourceRequirement.of(cpu=1, memory="1g")
"""The requirement of a session when neither it nor the configuration states one."""
