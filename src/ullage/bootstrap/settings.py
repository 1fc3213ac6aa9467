"""The server's settings: one TOML file, read once; unknown keys and bad values stop the start."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from ullage.bootstrap.history_settings import FairShareSection, HistorySection
from ullage.bootstrap.kube_settings import KubeSection
from ullage.bootstrap.listener import check_address
from ullage.bootstrap.request_settings import RequestsSection
from ullage.bootstrap.settings_sources import from_environment, merged, plain_types
from ullage.bootstrap.tls import TlsFiles
from ullage.bootstrap.user_settings import UsersSection
from ullage.core.placing.policy import Order, Policy
from ullage.core.placing.rules import Rules
from ullage.core.topology.rules import WidthRule, ZoneRules
from ullage.engines.local.sharing import HamiCore, Mps, Sharing, Unenforced
from ullage.engines.open import find_engine
from ullage.inventory.facts import CardFacts
from ullage.inventory.machine import MachineSettings
from ullage.model.choice import parse_choice
from ullage.model.error import InvalidRequest, invalid
from ullage.model.nearest import one_of
from ullage.model.node import MAX_EXECUTORS
from ullage.model.part import parse_tflops
from ullage.model.profile import Profile, Profiles
from ullage.model.profile_table import load_profiles
from ullage.model.profiles import SHIPPED
from ullage.model.provider import SHIPPED as SHIPPED_ALIGNED
from ullage.model.provider import Provider, ProviderKind, check_labels
from ullage.model.quantity import check_size, parse_size
from ullage.model.queue import ROOT, Queue, parse_bounds, parse_queue
from ullage.model.request import ResourceRequirement
from ullage.model.resources import MILLI, Resources
from ullage.model.session import check_memory
from ullage.model.topology import ZonePolicy
from ullage.service.service import ServiceSettings
from ullage.service.stop_rules import StopRules
from ullage.storage.place import path_of
from ullage.wire.nan import refuse_nan
from ullage.wire.topology.provider import read_provider
from ullage.wire.unknown_field import with_known_fields

PREFERRED_PORT = 7480
"""The default port if it is free; else any free one."""

_MOST_WEIGHT = 1000
_MOST_PORT = 65535
_HOST = re.compile(r"[^\s/?#@]+")


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ServerSection(_Section, frozen=True, kw_only=True):
    """The address of the server, its store (a path, `sqlite:///path` or `memory://`), and its engine.

    Without a port it takes 7480, or a free one if that is in use; 0 is any free one. `engine` is `local`, or the name
    of an engine in an installed package. Notices of ended sessions (`notify`) go to hosts that match one of
    `notify_hosts`, such as `*.example.com`; to link-local addresses only where an entry is exactly that host.

    With `cert` and `key` (PEM files, read again when they change) the port speaks HTTPS. `names` are further host names
    under which clients reach it.
    """

    host: str = "127.0.0.1"
    port: int | None = None
    storage: str | None = None
    engine: str = "local"
    cert: str | None = None
    key: str | None = None
    names: list[str] = []

    notify_hosts: list[str] = msgspec.field(default_factory=lambda: ["*"])

    def check(self) -> None:
        """Refuse an address, a store, an engine or hosts that a start would refuse, or that nobody could use.

        Raises:
            InvalidRequest: a value is wrong.

        """
        check_address(self.host, "server.host")
        check_port(self.port, "server.port")
        if self.storage is not None:
            path_of(self.storage, "server.storage")
        find_engine(self.engine, "server.engine")
        for field, hosts in (("server.names", self.names), ("server.notify_hosts", self.notify_hosts)):
            if wrong := [host for host in hosts if not _HOST.fullmatch(host)]:
                raise invalid(field, wrong[0], "write host names or addresses alone, such as gpu-box.example.org")
        self.tls()

    def tls(self) -> TlsFiles | None:
        """Return the certificate; None without one.

        Raises:
            InvalidRequest: one of the two files is missing, or they cannot be used.

        """
        if self.cert is None and self.key is None:
            return None
        if self.cert is None or self.key is None:
            raise invalid("server.cert", self.cert, "write both server.cert and server.key, or neither")
        return TlsFiles(Path(self.cert), Path(self.key))


class CardSection(_Section, frozen=True, kw_only=True):
    """Facts about cards: those named by `ids` (indexes or uuids), or all. A later section overrides earlier ones.

    `vram` is a size such as "40g", `tflops` the compute by which parts are measured; `pool` is a name that requests
    may use. `devices` are the device nodes of the card, which are closed to others; those of NVIDIA's cards are known.
    An omitted fact comes from the driver, or is unknown.
    """

    ids: list[str] = []
    model: str | None = None
    vendor: str | None = None
    vram: str | None = None
    tflops: int | float | str | None = None
    pool: str | None = None
    devices: list[str] = []

    def facts(self) -> CardFacts:
        """Return the section for the inventory."""
        return CardFacts(
            ids=tuple(self.ids),
            model=self.model,
            vendor=None if self.vendor is None else _vendor(self.vendor),
            vram_bytes=None if self.vram is None else parse_size(self.vram, "node.card.vram"),
            compute_gflops=None if self.tflops is None else parse_tflops(str(self.tflops), "node.card.tflops"),
            pool=self.pool,
            devices=tuple(self.devices),
        )


def _vendor(text: str) -> str:
    from ullage.wire.vendors.shipped import vendor_name  # noqa: PLC0415  # its tables are slow to read

    return vendor_name(text)


class NodeSection(_Section, frozen=True, kw_only=True):
    """The resources of this machine; every omitted setting is discovered.

    `gpus` is a count or a list of ids and overrides detection; `card` is a list of sections about cards
    (`[[node.card]]`); `reserved` is not available to work. `sharing` is what limits workers to parts of cards: nothing,
    CUDA MPS (its directories are `mps_pipe` and `mps_log`), or HAMi-core (the library is `hami_library`). `disk` is
    the size of the disk to which vram may spill, if limits may exceed the capacity of the cards
    (`[requests.oversubscription]`).
    """

    name: str | None = None
    gpus: int | list[str] | None = None
    card: list[CardSection] = []
    sharing: Literal["none", "mps", "hami"] = "none"
    mps_pipe: str = "/tmp/nvidia-mps"  # noqa: S108 - the default of MPS
    mps_log: str = "/var/log/nvidia-mps"
    hami_library: str | None = None
    disk: str | None = None
    cpu: int | None = None
    memory: str | None = None
    reserved: str | None = None
    max_executors: int = MAX_EXECUTORS
    labels: dict[str, str] = {}


class PolicySection(_Section, frozen=True, kw_only=True):
    """The rules of the cycle; see the reference of `Policy`. `reclaim_grace_s` below 0 never ends a task.

    A task that is ended has `stop_grace_s` between SIGTERM and SIGKILL, or the `grace_s` of its session, at most
    `most_grace_s`.

    Without a `strategy` parts of cards use `leftover`, everything else `best-fit`.
    """

    order: str = Order.DRF.value
    strategy: str | None = None
    reclaim_grace_s: float = 30.0
    min_runtime_s: float = 0.0
    protected_s: float = Policy().protected_s
    reserve_after_s: float = 300.0
    stop_grace_s: float = StopRules().grace_s
    most_grace_s: float = StopRules().most_grace_s


class QueueSection(_Section, frozen=True, kw_only=True):
    """A queue; guarantee, limit, `default_resreq` and `max_resreq` are requirement texts.

    A session that states nothing gets `default_resreq`, and `default_time_s` for each task; it may state at most
    `max_resreq` for an executor and `max_time_s` for a task. Queues below this one have the same bounds.
    """

    parent: str = ROOT
    weight: int = 1
    guarantee: str | None = None
    limit: str | None = None
    default_resreq: str | None = None
    max_resreq: str | None = None
    default_time_s: float | None = None
    max_time_s: float | None = None

    def read(self, name: str) -> Queue:
        """Return the queue of that name.

        Raises:
            InvalidRequest: a value is wrong; the queue is named.

        """
        try:
            bounds = parse_bounds(self.default_resreq, self.max_resreq, self.default_time_s, self.max_time_s)
            return parse_queue(name, self.parent, self.weight, self.guarantee, limit=self.limit, bounds=bounds)
        except InvalidRequest as error:
            raise InvalidRequest(f"queues.{name}: {error.message}", field=f"queues.{name}") from None


class ProviderSection(_Section, frozen=True, kw_only=True):
    """Whether a resource is aligned, by its name in requests and nodes.

    `resource` is `cpu`, `memory`, `hugepages-2Mi` or a device such as `nvidia.com/gpu` (`gpu`: cards of any vendor); a
    `*` at the end matches any rest. `kind` (device, cpu, memory, hugepages) follows from the name; for `*` alone the
    default is device. A resource that is not aligned does not affect the zones of a request: its CPUs and memory are
    not exclusive, and its devices come from any zone.
    """

    resource: str
    kind: str | None = None
    align: bool = True


class TopologySection(_Section, frozen=True, kw_only=True):
    """How zones are used.

    `width_rule` decides how many zones an aligned request may span: `kubelet` by the capacity of the machine,
    `current-best` by the free amounts now. `auto` follows the placing party: a kubelet uses its own rule, Ullage the
    free amounts. `provider` is a list of sections (`[[topology.provider]]`) on the alignment of resources. The first
    that matches a resource counts; a resource that none of them matches is aligned if its zones are known. A
    label of a node overrides them: `ullage.io/numa-align-NAME`, `true` or `false`, where NAME is `cpu`, `memory`,
    `hugepages`, `gpu` or a device with `_` for `/`. `score` is the score of a node by the number of zones that a
    request needs there: `absolute`, 100 divided by it, or `relative`, 100 less its percentage of the highest number.
    `weight` is the factor of that score relative to the strategy's, 0 to 1000. If the request asks for alignment, it
    comes before all other scores.
    """

    width_rule: str = "auto"
    provider: list[ProviderSection] = []
    score: str = "absolute"
    weight: float = 1.0


class Settings(_Section, frozen=True, kw_only=True):
    """The whole file. `resreq` is the requirement of a session without one.

    `numa` is the default alignment of CPUs and cards to zones: none (its own default), best-effort, restricted or
    single-numa-node. `profiles` are files with the partitions of card models; a
    relative path is relative to this file.
    """

    server: ServerSection = ServerSection()
    node: NodeSection = NodeSection()
    policy: PolicySection = PolicySection()
    requests_: RequestsSection = msgspec.field(name="requests", default_factory=RequestsSection)
    queues: dict[str, QueueSection] = {}
    topology: TopologySection = TopologySection()
    history: HistorySection = HistorySection()
    fair_share: FairShareSection = FairShareSection()
    kube: KubeSection = KubeSection()
    users: UsersSection = UsersSection()
    resreq: str | None = None
    numa: str | None = None
    profiles: list[str] = []

    def machine(self, sharing: Sharing) -> MachineSettings:
        """Return the settings of this machine as a node whose workers are limited to parts of cards by `sharing`."""
        node = self.node
        check_labels(node.labels, "node.labels")
        reserved = ResourceRequirement.from_string(node.reserved).resources if node.reserved else Resources()
        check_size("node.reserved.mem", reserved.memory_bytes)
        if node.cpu is not None and node.cpu < 1:
            raise invalid("node.cpu", node.cpu, "write a number of cores, 1 or more")
        return MachineSettings(
            name=node.name,
            gpus=tuple(node.gpus) if isinstance(node.gpus, list) else node.gpus,
            cpu_milli=None if node.cpu is None else node.cpu * MILLI,
            memory_bytes=None if node.memory is None else parse_size(node.memory, "node.memory"),
            reserved=reserved,
            max_executors=node.max_executors,
            labels=node.labels,
            facts=tuple(card.facts() for card in node.card),
            can_enforce=sharing.can_enforce,
        )

    def sharing(self) -> Sharing:
        """Return what limits workers to parts of cards.

        Raises:
            InvalidRequest: the directory or the library that it needs is missing, or not named.

        """
        node = self.node
        if node.sharing == "mps":
            pipe = Path(node.mps_pipe)
            if not pipe.is_dir():
                raise invalid("node.mps_pipe", node.mps_pipe, "no such directory; start nvidia-cuda-mps-control first")
            return Mps(pipe, Path(node.mps_log))
        if node.sharing == "hami":
            if node.hami_library is None:
                raise invalid("node.hami_library", "", 'write the path of libvgpu.so, or sharing = "none"')
            library = Path(node.hami_library)
            if not (library.is_absolute() and library.is_file()):
                raise invalid(
                    "node.hami_library", node.hami_library, "no such file; write the absolute path of libvgpu.so"
                )
            return HamiCore(library)
        return Unenforced()

    def rules(self) -> Policy:
        """Return the policy of the cycle."""
        section = self.policy
        if section.order not in {order.value for order in Order}:
            raise invalid("policy.order", section.order, one_of(section.order, Order))
        grace = section.reclaim_grace_s
        return Policy(
            order=Order(section.order),
            strategy=section.strategy,
            reclaim_grace_s=None if grace < 0 else grace,
            min_runtime_s=section.min_runtime_s,
            protected_s=section.protected_s,
            reserve_after_s=section.reserve_after_s,
        )

    def stop_rules(self) -> StopRules:
        """Return how long an ended task may clean up.

        Raises:
            InvalidRequest: a time is negative, or the usual one is above the most.

        """
        usual, most = self.policy.stop_grace_s, self.policy.most_grace_s
        if not 0 <= most < inf:
            raise invalid("policy.most_grace_s", most, "a number of seconds from 0 is needed")
        if not 0 <= usual <= most:
            raise invalid("policy.stop_grace_s", usual, f"0 to most_grace_s ({most:g}) seconds are needed")
        return StopRules(usual, most)

    def requests(self, node: str = "") -> Rules:
        """Return the rules for requests for cards on this machine; `node` is its name as a node."""
        disk = self.node.disk
        disks = {} if disk is None else {node: parse_size(disk, "node.disk")}
        return self.requests_.rules(disks, self.policy.protected_s)

    def card_profiles(self) -> Profiles:
        """Return the partitions of cards; the operator's own override those that come with Ullage.

        Raises:
            InvalidRequest: a file cannot be read, or an entry of it is wrong; the file is named.

        """
        own: list[Profile] = []
        for name in self.profiles:
            try:
                own.extend(load_profiles(Path(name).read_text(encoding="utf-8")).entries)
            except (OSError, UnicodeDecodeError) as error:
                raise invalid("profiles", name, f"it cannot be read: {error}") from None
            except InvalidRequest as error:
                raise InvalidRequest(f"profiles: {name}: {error.message}", field="profiles") from None
        return SHIPPED.overridden_by(own)

    def service(self, node: str = "") -> ServiceSettings:
        """Return the settings of the service; `node` is the name of this machine as a node."""
        return ServiceSettings(
            policy=self.rules(),
            queues=self.share_tree(),
            default_requirement=self.default_requirement(),
            requests=self.requests(node),
            profiles=self.card_profiles(),
            numa=self.zone_policy(),
            zone_rules=self.zone_rules(),
            notify_hosts=tuple(self.server.notify_hosts),
            access=self.users.rules(),
            stops=self.stop_rules(),
            half_life=self.fair_share.read(self.history.keeping().history_s),
        )

    def share_tree(self) -> tuple[Queue, ...]:
        """Return the configured queues."""
        return tuple(queue.read(name) for name, queue in self.queues.items())

    def default_requirement(self) -> ResourceRequirement | None:
        """Return the operator's requirement of a session that states none, if there is one."""
        if self.resreq is None:
            return None
        try:
            requirement = ResourceRequirement.from_string(self.resreq)
            check_memory(requirement)
        except InvalidRequest as error:
            raise InvalidRequest(f"settings: resreq: {error.message}", field="resreq") from None
        return requirement

    def zone_policy(self) -> ZonePolicy | None:
        """Return the operator's default policy of zones, if there is one."""
        return None if self.numa is None else parse_choice(ZonePolicy, self.numa, "numa")

    def zone_rules(self) -> ZoneRules:
        """Return the rules of zones."""
        section = self.topology
        rule = section.width_rule
        if rule not in ("auto", *WidthRule):
            raise invalid("topology.width_rule", rule, one_of(rule, ("auto", *WidthRule)))
        if section.score not in ("absolute", "relative"):
            raise invalid("topology.score", section.score, one_of(section.score, ("absolute", "relative")))
        if not 0 <= section.weight <= _MOST_WEIGHT:
            raise invalid("topology.weight", section.weight, f"a number from 0 to {_MOST_WEIGHT} is needed")
        return ZoneRules(
            width_rule=None if rule == "auto" else WidthRule(rule),
            providers=(*_providers(section.provider), *SHIPPED_ALIGNED),
            weight=section.weight,
            relative=section.score == "relative",
        )


def check_port(port: int | None, field: str) -> None:
    """Refuse a number that is no port.

    Raises:
        InvalidRequest: it is out of range.

    """
    if port is not None and not 0 <= port <= _MOST_PORT:
        raise invalid(field, port, f"write a number from 0 (any free port) to {_MOST_PORT}")


def read_settings(path: Path | None, environment: Mapping[str, str] = MappingProxyType({})) -> Settings:
    """Return the settings in a file, overridden by variables of the environment; the defaults if neither is given.

    Raises:
        InvalidRequest: the file cannot be read, or a key or value is unknown.

    """
    found, given = read_tables(path), from_environment(Settings, environment)
    if not found and not given:
        return Settings()
    try:
        settings = msgspec.convert(merged(found, given), Settings)
        profiles = [str((Path() if path is None else path.parent) / name) for name in settings.profiles]
        return msgspec.structs.replace(settings, profiles=profiles)
    except msgspec.ValidationError as error:
        text = re.sub(r"`\$\.?(.*?)`", r"`\1`", with_known_fields(error, Settings))
        raise InvalidRequest(f"settings: {path}: {plain_types(text)}", field="config") from None


def read_tables(path: Path | None) -> dict[str, Any]:
    """Return the tables of a settings file as they are written; none if the path is None.

    Raises:
        InvalidRequest: the file cannot be read, or is no TOML.

    """
    if path is None:
        return {}
    try:
        found = tomllib.loads(path.read_text())
    except OSError as error:
        raise InvalidRequest(f"settings: {path} cannot be read: {error.strerror}", field="config") from None
    except (ValueError, RecursionError) as error:  # not TOML, not text, a number too long, or nested too deeply
        raise InvalidRequest(f"settings: {path} is not valid TOML: {error}", field="config") from None
    refuse_nan(found)
    return found


def _providers(sections: Iterable[ProviderSection]) -> Iterator[Provider]:
    seen: set[tuple[str, ProviderKind]] = set()
    for section in sections:
        entry = read_provider(section.resource, section.kind, section.align, "topology.provider")
        if (entry.resource, entry.kind) in seen:
            raise invalid("topology.provider.resource", section.resource, "it has an entry already; remove one")
        seen.add((entry.resource, entry.kind))
        yield entry
