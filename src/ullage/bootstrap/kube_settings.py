"""The section `[kube]` of the settings: Ullage in front of a Kubernetes cluster."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import structs

from ullage.bootstrap.address import Address
from ullage.bootstrap.kube_binding_settings import BindingsSection
from ullage.bootstrap.kube_card_settings import (
    DNS_NAME,
    LABEL_KEY,
    LABEL_VALUE,
    CardDriverSection,
    CardModelSection,
    CardPoolSection,
)
from ullage.kube.extender.filtering import OFFERED_NODES
from ullage.kube.mirror.unbound_choices import CHOICE_S
from ullage.model.card_driver import NVIDIA as NVIDIA_DRIVER
from ullage.model.card_driver import CardDriver
from ullage.model.card_figures import SHIPPED_FIGURES, Figures
from ullage.model.card_pool import PoolRule
from ullage.model.error import invalid
from ullage.wire.dialect import PodSettings
from ullage.wire.hami.lock import LOCK_EXPIRES_S, LOCK_WAIT_S
from ullage.wire.hami.policies import STRATEGIES
from ullage.wire.pod import DOMAIN
from ullage.wire.pod.duration import parse_duration
from ullage.wire.vendors.device_config import DeviceConfig, read_device_config
from ullage.wire.vendors.family import Family
from ullage.wire.vendors.shipped import FAMILIES, NVIDIA

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""The file with the namespace of a pod."""

_LEAST_LEASE_S, _MOST_LEASE_S = 3, 300

_SET = rf"\(\s*{LABEL_VALUE}(?:\s*,\s*{LABEL_VALUE})*\s*\)"
_CONDITION = (
    rf"\s*(?:!\s*{LABEL_KEY}|{LABEL_KEY}(?:\s*(?:=|==|!=)\s*{LABEL_VALUE}|\s+(?:in|notin)\s*{_SET}|\s*[<>]\s*\d+)?)\s*"
)
_SELECTOR = re.compile(rf"{_CONDITION}(?:,{_CONDITION})*")
_NAME = re.compile(DNS_NAME)


class KubeSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cluster and the addresses of `ullage kube`. Addresses are `HOST:PORT`; `:PORT` is all addresses of a machine.

    The default `kubeconfig` is the service account of its pod, then the file that KUBECONFIG names. `domain` is the
    domain of its annotations and labels. The Lease `lease` in `lease_namespace` (by default its own namespace) elects
    the leader. If the machine of a leader is lost, another process leads after `lease_s`, in whole seconds. A leader
    renews the Lease every `lease_renew_s` (by default 2/15 of `lease_s`, 2 at most). It stops placing pods after 2/3
    of `lease_s` without a renewal, until the API server answers. `node_label_selector` selects the nodes; with
    `topologies` the cluster has Numatopology objects, and nothing is decided before they are read.
    With `align_all` pods without cards are placed by zones that do not ask for a policy: those of the class Guaranteed,
    and those with devices. Without it only pods with the annotation `DOMAIN/numa-policy`, or Volcano's, are.
    `noderesourcetopologies` says whether NodeResourceTopology objects are read too, where the cluster has them: `off`;
    `second`, which counts them for nodes without a Numatopology; or `first`, which counts them for all nodes that have
    one. With `pessimistic_zones` a pod that such an object does not include yet counts in all zones of its node. With
    `resource_quotas` the keys `limits.nvidia.com/gpumem` and `gpucores` of ResourceQuotas apply, and those of other
    vendors, which requires permission to list them.

    kube-scheduler calls the extender at `http_bind`: over TLS with `cert_file` and `key_file`, and only with a
    certificate of `client_ca_file` if it is set. The API server calls the webhook at `webhook_bind`, always over TLS;
    without it there is no webhook. Files are read again when they change. `metrics_bind` serves the metrics and the
    probes; with `legacy_metrics` those of HAMi's scheduler also have their former names. `page_bind` serves the live
    page and what `kubectl ullage` asks for, to everybody who can reach it: names of pods, nodes and cards, no secrets,
    and nothing is changed there. Without it there is no page.

    The webhook writes `scheduler_name` on pods with cards (empty: it does not), also on those for the default
    scheduler with `force_overwrite_default_scheduler`, and `runtime_class` where a pod has none. Only `own_user` (the
    user of this process at the API server; empty: no user) may change what a scheduler wrote on a pod. `hami_users`
    are HAMi's device plugin and its scheduler: if they are named, only they and `own_user` may change the annotations
    of a pod that name the cards for the plugin. Without them every user may add to these annotations, and no user may
    remove cards or amounts from a pod that is on a node.

    The policies are HAMi's defaults for nodes and cards; without both the strategy of `[requests]` applies.
    `default_memory` (MiB) and `default_cores` (percent) are the defaults of HAMi's pods for each card of NVIDIA.
    `device_config_file` is HAMi's device configuration (`device-config.yaml`): its names of resources, factors,
    defaults and slices of each vendor apply. What of it is not followed is logged by name.

    With `cleanup_startup_delay` (such as `10m`) pods are evicted whose cards are missing: first that long after the
    start, each pod after five minutes without its card, few at a time, and none of a node that does not report.

    `queues` selects the pods with cards that wait in queues: none (`off`), those with a queue in the label
    `DOMAIN/queue` or on their namespace (`named`), or `all`. A pod without that label is in the queue that has the
    name of its namespace. Weights, guarantees and limits of queues are those of `[queues.NAME]`. With `binder` `ullage`
    the pods of queues are bound without kube-scheduler, unless they have a field about which only it can decide, such
    as a persistent volume: their scheduler name is `scheduler_name` with `-direct`.

    With `preemption` pods are evicted for others of higher priority that fit nowhere, where kube-scheduler cannot do
    it: for parts of cards, for whole cards that are shared, and for pods and gangs that wait in queues.

    Of the nodes that fit a pod, kube-scheduler is offered the `offered_nodes` with the highest scores, or with 0 all;
    so are pods with preferred affinity or topology spread constraints, which it scores.

    With `claims` ResourceClaims are supported, where the cluster has them: their cards are held, and the claims of
    pods that name the scheduler are allocated (needs cel-expr-python). Cards are the devices of NVIDIA's driver, or
    those that `[[kube.card_driver]]` describes. `[[kube.card_model]]` has the compute of card models that Ullage's
    table lacks or has wrong. `[[kube.card_pool]]` selects the cards of a pool.

    With `claims_from_words`, the name of a DeviceClass and of its driver, requests for cards of NVIDIA in HAMi's words,
    or in numbers of whole cards, are turned into claims of that class when a pod is created.

    A node with HAMi's device plugin starts one pod at a time: a lock that is not removed expires after
    `node_lock_timeout_s`, and a pod waits `node_lock_retry_s` for the lock, less than kube-scheduler waits for an
    answer. The cards that another scheduler chose for a pod are held for `choice_timeout_s` before it binds the pod.
    """

    kubeconfig: str | None = None
    context: str | None = None
    domain: str = DOMAIN
    lease: str = "ullage"
    lease_namespace: str | None = None
    lease_s: int = 15
    lease_renew_s: float | None = None
    node_label_selector: str = ""
    topologies: bool = False
    align_all: bool = False
    noderesourcetopologies: Literal["off", "second", "first"] = "off"
    pessimistic_zones: bool = False
    resource_quotas: bool = False
    timeout_s: float = 10.0
    http_bind: str = "127.0.0.1:8080"
    cert_file: str | None = None
    key_file: str | None = None
    client_ca_file: str | None = None
    webhook_bind: str | None = None
    webhook_cert_file: str | None = None
    webhook_key_file: str | None = None
    metrics_bind: str | None = "127.0.0.1:9395"
    legacy_metrics: bool = False
    page_bind: str | None = None
    scheduler_name: str = "ullage"
    own_user: str = ""
    hami_users: tuple[str, ...] = ()
    force_overwrite_default_scheduler: bool = True
    runtime_class: str = ""
    node_scheduler_policy: Literal["binpack", "spread"] | None = None
    gpu_scheduler_policy: Literal["binpack", "spread", "topology-aware"] | None = None
    default_memory: int = 0
    default_cores: int = 0
    device_config_file: str | None = None
    cleanup_startup_delay: str | None = None
    bindings: BindingsSection = BindingsSection()
    queues: Literal["off", "named", "all"] = "off"
    binder: Literal["kube-scheduler", "ullage"] = "kube-scheduler"
    preemption: bool = True
    offered_nodes: int = OFFERED_NODES
    claims: bool = True
    claims_from_words: str = ""
    card_driver: tuple[CardDriverSection, ...] = ()
    card_model: tuple[CardModelSection, ...] = ()
    card_pool: tuple[CardPoolSection, ...] = ()
    node_lock_timeout_s: float = LOCK_EXPIRES_S
    node_lock_retry_s: float = LOCK_WAIT_S
    choice_timeout_s: float = CHOICE_S

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other.

        Raises:
            InvalidRequest: a wrong address or number, or one of two files without the other.

        """
        for name in ("http_bind", "webhook_bind", "metrics_bind", "page_bind"):
            if (text := getattr(self, name)) is not None:
                Address.parse(text, f"kube.{name}")
        for one, other in (("cert_file", "key_file"), ("webhook_cert_file", "webhook_key_file")):
            if (getattr(self, one) is None) is not (getattr(self, other) is None):
                raise invalid(f"kube.{one}", getattr(self, one), f"kube.{other} belongs to it; name both, or neither")
        if self.client_ca_file is not None and self.cert_file is None:
            raise invalid("kube.client_ca_file", self.client_ca_file, "it needs TLS; name kube.cert_file")
        if self.webhook_bind is not None and self.webhook_cert_file is None:
            raise invalid("kube.webhook_bind", self.webhook_bind, "it needs TLS; name kube.webhook_cert_file")
        if self.claims_from_words and not (self.claims and self.scheduler_name):
            fix = "it needs kube.claims and kube.scheduler_name; set both, or leave it out"
            raise invalid("kube.claims_from_words", self.claims_from_words, fix)
        if self.binder == "ullage" and not (self.queues != "off" and self.scheduler_name):
            fix = "it binds the pods of queues; set kube.queues and kube.scheduler_name, or leave it out"
            raise invalid("kube.binder", self.binder, fix)
        self._check_names()
        self._check_amounts()

    def _check_names(self) -> None:
        """Refuse names that an API server would refuse: the process would wait for ever."""
        may_be_empty = "scheduler_name", "runtime_class", "claims_from_words"
        for name in ("domain", "lease", "lease_namespace", *may_be_empty):
            text = getattr(self, name)
            if text is not None and not _NAME.fullmatch(text) and not (text == "" and name in may_be_empty):
                raise invalid(f"kube.{name}", text, "use small letters, digits, '-' and '.'")
        if self.node_label_selector and not _SELECTOR.fullmatch(self.node_label_selector):
            fix = "write a label selector such as gpu=on,zone in (a,b),!old"
            raise invalid("kube.node_label_selector", self.node_label_selector, fix)

    def _check_amounts(self) -> None:
        if self.cleanup_startup_delay is not None and parse_duration(self.cleanup_startup_delay) is None:
            raise invalid("kube.cleanup_startup_delay", self.cleanup_startup_delay, "write a duration such as 10m")
        if not _LEAST_LEASE_S <= self.lease_s <= _MOST_LEASE_S:
            fix = f"whole seconds from {_LEAST_LEASE_S} to {_MOST_LEASE_S} are needed"
            raise invalid("kube.lease_s", self.lease_s, fix)
        if not 0 < self.renew_s <= self.lease_s / 3:
            raise invalid(
                "kube.lease_renew_s", self.renew_s, f"above 0, and a third of kube.lease_s ({self.lease_s}) at most"
            )
        for name in ("timeout_s", "node_lock_timeout_s", "choice_timeout_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise invalid(f"kube.{name}", getattr(self, name), "seconds above 0 are needed")
        none = {
            "default_memory": "no default",
            "default_cores": "no default",
            "node_lock_retry_s": "pods do not wait",
            "offered_nodes": "all",
        }
        for name, meaning in none.items():
            if not 0 <= getattr(self, name) < math.inf:
                raise invalid(f"kube.{name}", getattr(self, name), f"0 ({meaning}) or more is needed")

    def check_callers(self) -> None:
        """Refuse an extender open to unknown callers, as its callers bind pods. Files may be named by options alone.

        Raises:
            InvalidRequest: other machines can reach it, and no client CA is named.

        """
        if self.client_ca_file is None and not Address.parse(self.http_bind, "kube.http_bind").is_local:
            fix = "any caller could bind pods there; name kube.client_ca_file, or listen on 127.0.0.1"
            raise invalid("kube.http_bind", self.http_bind, fix)

    def check_bindings(self) -> None:
        """Refuse routes of bindings without TLS; certificates may be named by options alone.

        Raises:
            InvalidRequest: their address is not local, and there is no TLS.

        """
        bind = self.bindings.bind
        if bind is not None and self.cert_file is None and not Address.parse(bind, "bind").is_local:
            fix = "tokens are sent there; name kube.cert_file, or listen on 127.0.0.1"
            raise invalid("kube.bindings.bind", bind, fix)
        if self.bindings.proxy_ca_file is not None and self.bindings.user_prefix:
            fix = "a proxy names users as they are; leave one of the two out"
            raise invalid("kube.bindings.user_prefix", self.bindings.user_prefix, fix)
        if self.bindings.proxy_ca_file is not None and self.cert_file is None:
            fix = "it needs TLS; name kube.cert_file"
            raise invalid("kube.bindings.proxy_ca_file", self.bindings.proxy_ca_file, fix)

    @property
    def pods(self) -> PodSettings:
        """The settings for reading pods."""
        return PodSettings(
            self.domain, tuple(map(self._with_policies, self.device_config.families)), align_all=self.align_all
        )

    @property
    def device_config(self) -> DeviceConfig:
        """The families of cards, with what HAMi's device configuration says of them.

        Raises:
            InvalidRequest: the file cannot be read, or a value is wrong.

        """
        if self.device_config_file is None:
            return DeviceConfig(FAMILIES)
        import yaml  # noqa: PLC0415 - where there is such a file

        try:
            config = yaml.safe_load(Path(self.device_config_file).read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as error:
            fix = f"it cannot be read: {error}"
            raise invalid("kube.device_config_file", self.device_config_file, fix) from None
        return read_device_config(config, FAMILIES, self.device_config_file)

    def _with_policies(self, family: Family) -> Family:
        """Return a family with the policies and the defaults of the settings; defaults are those of NVIDIA."""
        found = structs.replace(
            family,
            node_policy=self.node_scheduler_policy or family.node_policy,
            card_policy=self._sorting or family.card_policy,
        )
        if family.name != NVIDIA.name:
            return found
        memory = structs.replace(family.memory, default_mib=self.default_memory or family.memory.default_mib)
        cores = structs.replace(family.cores, default=self.default_cores or family.cores.default)
        connected = self.gpu_scheduler_policy == "topology-aware"
        return structs.replace(found, memory=memory, cores=cores, connected=connected)

    @property
    def renew_s(self) -> float:
        """The seconds between two renewals of the Lease."""
        return min(2.0, self.lease_s * 2 / 15) if self.lease_renew_s is None else self.lease_renew_s

    @property
    def figures(self) -> Figures:
        """The capacity of card models: from the settings, else as it comes with Ullage."""
        return SHIPPED_FIGURES.overridden_by(each.figure for each in self.card_model)

    @property
    def pools(self) -> tuple[PoolRule, ...]:
        """The rules of pools, for nodes that do not name the pools of their cards."""
        return tuple(each.rule for each in self.card_pool)

    @property
    def cleanup_delay_s(self) -> float | None:
        """The seconds after the start in which no pod is evicted for a missing card; None for ever."""
        return None if self.cleanup_startup_delay is None else parse_duration(self.cleanup_startup_delay)

    @property
    def drivers(self) -> tuple[CardDriver, ...]:
        """The drivers whose devices are cards."""
        return tuple(each.value for each in self.card_driver) or (NVIDIA_DRIVER,)

    @property
    def strategy(self) -> str | None:
        """The strategy of the policies, if one is named."""
        if self.node_scheduler_policy is None and self._sorting is None:
            return None
        return STRATEGIES[self.node_scheduler_policy or NVIDIA.node_policy, self._sorting or NVIDIA.card_policy]

    @property
    def _sorting(self) -> Literal["binpack", "spread"] | None:
        return None if self.gpu_scheduler_policy == "topology-aware" else self.gpu_scheduler_policy

    @property
    def namespace(self) -> str:
        """The namespace of the Lease."""
        if self.lease_namespace is not None:
            return self.lease_namespace
        try:
            return SERVICE_ACCOUNT.read_text().strip() or "default"
        except OSError:
            return "default"
