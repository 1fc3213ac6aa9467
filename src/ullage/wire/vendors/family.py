"""What is known of the devices of a vendor: their words on pods and nodes, units, and the names of peculiar rules.

A family are the devices that pods request by the same resources. Each value of a rule, such as `sets = "wings"`, names
a behaviour that is written once in code; the file of a vendor selects it.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ullage.model.part import Isolation

ANNOTATIONS = "hami.io"
"""The domain of HAMi's annotations that are the same for all vendors."""

POLICY_ANNOTATIONS = ("node-scheduler-policy", "gpu-scheduler-policy", "device-scoring-weights")
"""Annotations of a pod under `ANNOTATIONS`."""

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**24)]
Size = Annotated[int, msgspec.Meta(ge=1, le=2**24)]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a vendor's file."""


class ResourceWords(Section, frozen=True, kw_only=True):
    """ResourceWords of a container; "" where the family has none for the amount. `percent` is of a card's memory."""

    count: Text
    memory: str = ""
    percent: str = ""
    cores: str = ""
    priority: str = ""


class CountRule(Section, frozen=True, kw_only=True):
    """How many cards a container may request.

    `default` is the number where it states only amounts (0: it requests none). `step` cards go together, and one is
    rounded up to that. With `parts_of_one` parts are of one card only. With `app_only` init containers and sidecars
    request none. A `slice` is one card, and its size.
    """

    default: Count = 0
    allowed: tuple[Size, ...] = ()
    step: Size = 1
    parts_of_one: bool = False
    app_only: bool = False
    means: Literal["cards", "slice"] = "cards"


class MemoryRule(Section, frozen=True, kw_only=True):
    """How an amount of memory is read. It counts units of `unit_mib`, of each card, as `sizes` do.

    `of_several_mib` is the amount of each card where a container requests several cards, whatever it says. Amounts are
    rounded up to `templates`, to the `profiles` of the node, or to `steps`, or have to be `listed`. An amount with a
    suffix is refused, or counts `bytes`.
    """

    unit_mib: Size = 1
    default_mib: Count = 0
    most_mib: Count = 0
    amounts: Literal["any", "templates", "profiles", "steps", "listed"] = "any"
    sizes: tuple[Size, ...] = ()
    of_several_mib: Count = 0
    with_unit: Literal["refused", "bytes"] = "refused"


class CoreRule(Section, frozen=True, kw_only=True):
    """How an amount of cores is read: `per_card` are all of a card.

    `default` counts where a container states none, `of_whole` where it requests a card's whole memory too,
    `of_several` where it requests several cards. With `over_cards` the amount is that of all cards together, and more
    than one card has are whole cards. With `by_memory` cores follow from the memory. Only pods of `modes` may state
    cores, where modes are named.
    """

    per_card: Size = 100
    default: Count = 0
    of_whole: Count = 0
    of_several: Count = 0
    least: Count = 0
    most: Count = 0
    over_cards: bool = False
    by_memory: bool = False
    modes: tuple[str, ...] = ()


class Register(Section, frozen=True, kw_only=True):
    """Where the cards of a node are known from: an annotation in `format`, or the node's capacity.

    Of a capacity, `cards` is the resource that counts `per_card` for each card, `memory` that of all memory in units,
    `cores` that of all cores. `uuid` names cards that have no identity. `links` is the annotation with a score for each
    pair of cards, and `island` the fact of a card whose equal values mean that cards are joined by fast links. Parts
    are isolated softly only on nodes with the annotation `soft_on`, where that is named.
    """

    format: Literal["hami", "volcano", "metax", "drs", "capacity"]
    annotation: str = ""
    handshake: str = ""
    links: str = ""
    island: str = ""
    soft_on: str = ""
    cards: str = ""
    per_card: Size = 1
    memory: str = ""
    memory_mib: Count = 0
    cores: str = ""
    uuid: str = ""
    users: Count = 0
    zones: Count = 0

    def __post_init__(self) -> None:
        """Refuse a register that nothing can be read from."""
        if self.format == "capacity":
            if not self.cards or not self.uuid:
                raise ValueError("a register of format capacity names `cards` and `uuid`")
        elif not self.annotation:
            raise ValueError("name the `annotation` of the register")


class PodAnnotations(Section, frozen=True, kw_only=True):
    """Annotations that select cards. Of several lists of uuids all count. Those that are `unread` have no effect."""

    use_type: str = ""
    nouse_type: str = ""
    use_uuid: tuple[Text, ...] = ()
    nouse_uuid: tuple[Text, ...] = ()
    numa_bind: str = ""
    mode: str = ""
    unread: tuple[Text, ...] = ()


class SliceTemplate(Section, frozen=True, kw_only=True):
    """A slice of fixed size: its memory, and how many cores and CPUs of the card it has."""

    name: Text
    memory_mib: Size
    cores: Count = 0
    cpus: Count = 0


class Classes(Section, frozen=True, kw_only=True):
    """Classes of pods: only pods of one class share a card."""

    annotation: Text
    values: tuple[Text, ...]
    default: Text


class LockRule(Section, frozen=True, kw_only=True):
    """The annotation of a node that says which pod its device plugin serves next; "": it needs none.

    `owner` is `time,namespace,pod`, `time` has no pod.
    """

    annotation: str = ""
    format: Literal["owner", "time"] = "owner"
    expires_s: Count = 0


class ResultRule(Section, frozen=True, kw_only=True):
    """What is written on a placed pod. `to_allocate` and `allocated` have the devices of each container.

    In the form `hami` these are all containers, and each ends with `;`; in the form `volcano` app containers alone,
    with `;` between them. The type of a device is the family's word, or the model of the card. `memory` and `cores` are
    what the container requested, or fixed numbers; cores may be in units of the card, or a mask of its cores. `domain`
    is that of the annotations of node, time and phase. `extra` are further annotations with the names of values in
    braces; one without its value is not written.
    """

    domain: Text = ANNOTATIONS
    form: Literal["hami", "volcano"] = "hami"
    allocated: Text
    to_allocate: str = ""
    type: Literal["word", "model"] = "word"
    memory: Count | Literal["asked"] = "asked"
    cores: Count | Literal["asked", "units-of-card", "mask"] = "asked"
    extra: dict[str, str] = {}

    @property
    def node(self) -> str:
        """The annotation with the node of the devices."""
        return f"{self.domain}/vgpu-node"

    @property
    def time(self) -> str:
        """The annotation with the time of the choice, in seconds since 1970."""
        return f"{self.domain}/vgpu-time"

    @property
    def phase(self) -> str:
        """The annotation in which the device plugin says that it has handed out the devices, or failed."""
        return f"{self.domain}/bind-phase"

    @property
    def bind_time(self) -> str:
        """The annotation with the time of the bind, in seconds since 1970."""
        return f"{self.domain}/bind-time"

    @property
    def common(self) -> tuple[str, ...]:
        """The annotations that are written for the devices of every family of the domain."""
        return self.node, self.time, self.phase, self.bind_time

    @property
    def devices(self) -> tuple[str, ...]:
        """The annotations with the devices of each container."""
        return tuple(filter(None, (self.to_allocate, self.allocated)))


class WebhookRule(Section, frozen=True, kw_only=True):
    """What the webhook writes: amounts that are read otherwise than stated, environment, and annotations.

    `env` is of containers with cards, `env_without_cards` of others, so that they see no card; that is written only
    if `hides_cards`. `core_policy` says when the limiter holds a container to its cores.
    """

    complete: tuple[Literal["memory", "cores"], ...] = ()
    env: dict[str, str] = {}
    annotations: dict[str, str] = {}
    runtime_class: str = ""
    env_without_cards: dict[str, str] = {}
    hides_cards: bool = False
    core_policy: Literal["default", "force", "disable"] = "default"


class ConfigKeys(Section, frozen=True, kw_only=True):
    """The keys of HAMi's device configuration that change this family, and those that only its plugin reads.

    `keys` names the field here for each key. `by` is the key that holds the family's word where the section is a list.
    """

    section: str = ""
    by: str = ""
    keys: dict[str, str] = {}
    plugin: tuple[str, ...] = ()


Parts = Literal["none", "soft", "hard"]
Sets = Literal["", "wings", "rows", "modules", "networks", "links", "boards"]


class Family(Section, frozen=True, kw_only=True):
    """The devices that pods request by the same resources. `name` is the vendor of its cards in the books.

    `word` is what HAMi calls them on pods. `parts` is how parts of a card are isolated; `none`: cards are held whole.
    `sets` names the rule by which cards go together, and with `equal_slices` a card has slices of one size only.
    """

    name: Text
    word: Text
    vendor: str = ""
    parts: Parts
    resources: ResourceWords
    register: Register
    results: ResultRule
    count: CountRule = CountRule()
    memory: MemoryRule = MemoryRule()
    cores: CoreRule = CoreRule()
    annotations: PodAnnotations = PodAnnotations()
    modes: dict[str, Isolation] = {}
    templates: tuple[SliceTemplate, ...] = ()
    classes: Classes | None = None
    lock: LockRule = LockRule()
    webhook: WebhookRule = WebhookRule()
    config: ConfigKeys = ConfigKeys()
    sets: Sets = ""
    equal_slices: bool = False
    node_policy: Literal["binpack", "spread"] = "binpack"
    card_policy: Literal["binpack", "spread"] = "spread"
    connected: bool = False
    """Whether a pod that names no policy for cards gets those that are connected best."""

    def __post_init__(self) -> None:
        """Refuse rules that name what is not there."""
        if self.memory.amounts in ("steps", "listed") and not self.memory.sizes:
            raise ValueError(f"memory.sizes is needed for memory.amounts = {self.memory.amounts!r}")
        if self.modes and not self.annotations.mode:
            raise ValueError("modes need annotations.mode, the annotation that names one")
        if missing := set(self.cores.modes) - set(self.modes):
            raise ValueError(f"cores.modes names {min(missing)!r}, which is not in modes")
        if self.classes is not None and self.classes.default not in self.classes.values:
            raise ValueError("classes.default is one of classes.values")

    def __hash__(self) -> int:
        return hash((self.name, self.word))

    @property
    def amounts(self) -> tuple[str, ...]:
        """ResourceWords that only a scheduler of parts reads."""
        own = self.resources
        return tuple(name for name in (own.memory, own.percent, own.cores, own.priority) if name)

    @property
    def has_rules(self) -> bool:
        """Whether a number of cards alone is not just that many whole cards, softly isolated as of any other plugin."""
        parts = self.memory.default_mib if self.memory.amounts == "any" else 0
        less = 0 < self.cores.default < self.cores.per_card
        own = self.parts == "hard" or self.connected
        return bool(parts or less or own or self.count.allowed or self.count.step > 1 or self.count.means == "slice")

    def annotation_keys(self) -> tuple[str, ...]:
        """Return the full keys of the annotations of requests."""
        own = self.annotations
        keys = (own.use_type, own.nouse_type, *own.use_uuid, *own.nouse_uuid, own.numa_bind, own.mode)
        classes = () if self.classes is None else (self.classes.annotation,)
        policies = (f"{ANNOTATIONS}/{name}" for name in POLICY_ANNOTATIONS)
        return tuple(dict.fromkeys((*filter(None, keys), *classes, *policies)))

    @property
    def result_keys(self) -> tuple[str, ...]:
        """The annotations that a scheduler writes on a placed pod."""
        return (*self.results.devices, *self.results.extra)


class SliceWords(Section, frozen=True, kw_only=True):
    """Resources that a plain plugin offers for slices that exist already: `prefix`, then the name of their profile.

    `vendor` is that of the sliced cards in the books.
    """

    prefix: Text
    vendor: Text


class VendorFile(Section, frozen=True, kw_only=True):
    """One vendor: its families, the resources of its `plain` plugin, and whether it has a limiter of parts.

    Those resources count whole cards, those of `slices` slices. A pod may name the vendor, and cards of every family
    match.
    """

    vendor: Text
    plain: tuple[Text, ...] = ()
    slices: SliceWords | None = None
    limiter: bool = False
    not_offered: tuple[Text, ...] = ()
    """What HAMi offers for it and this program does not, one sentence each."""
    family: tuple[Family, ...] = ()
