"""What becomes of a pod when it is created: who places it, what it may not say itself, and whether it can be served.

All here follows from the pod and from what it is asked of: nothing is remembered, so that a dry run and a second
call are like any other. What only a scheduler writes is taken off a pod that was not placed: it would be believed.
Later only whoever places pods writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from ullage.kube.webhook.bound_cards import BoundCounts, ask_for_bound
from ullage.model.error import UllageError, invalid, invalid_annotation
from ullage.model.name import check_name
from ullage.model.queue import ROOT, Queue
from ullage.wire.admission import Review
from ullage.wire.dialect import TENSOR_FUSION, PodReader, read_pod
from ullage.wire.document import Document, mapping, mappings, text
from ullage.wire.hami.admission import check_pod, ignores
from ullage.wire.hami.ask import DeviceAsk
from ullage.wire.hami.results import OUTPUT as HAMI_OUTPUT
from ullage.wire.json_patch import Patch
from ullage.wire.other_words import other_words
from ullage.wire.pod import Dialect, PodRequest, check_admission, gang_annotations
from ullage.wire.pod.alignment import zone_words
from ullage.wire.pod.bind import OUTPUT
from ullage.wire.pod.gate import NOTES, gate_of
from ullage.wire.unread import Unread, unread, unread_labels
from ullage.wire.without_effect import without_effect

DEFAULT_SCHEDULER = "default-scheduler"
"""What an API server writes where a pod names no scheduler."""

TASK_PRIORITY = "CUDA_TASK_PRIORITY"
"""The variable by which the library in a container is told the priority of its work on a shared card."""

_INVALID, _TOO_MUCH = 422, 403

Queueing = Literal["off", "named", "all"]
"""Which pods wait for their turn."""

OverQuota = Callable[[PodRequest], str]
"""What the quotas say against one more such pod; "" if nothing does."""


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """How pods are admitted. With no `scheduler` it is left as the pod says, and with no `runtime_class` that is.

    `overwrite_default`: pods for the scheduler that there is anyway are ours too, if they ask for cards. `queues` says
    which of them wait for their turn: none, those that name a queue or whose namespace does, or all; `tree` are the
    queues that are more than names. `claims_gate` is the gate behind which pods that name our scheduler wait for their
    claims; with "" none does. `own_user` is who this process is to the API server: nobody else changes what a
    scheduler wrote on a pod; with "" nobody does. `hami_users` are HAMi's device plugin and its scheduler: where they
    are named, nobody else changes what that plugin reads.
    """

    scheduler: str = "ullage"
    overwrite_default: bool = True
    runtime_class: str = ""
    queues: Queueing = "off"
    tree: tuple[Queue, ...] = ()
    claims_gate: str = ""
    own_user: str = ""
    hami_users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Webhook:
    """Answers reviews. `skips` says of a namespace that all its pods are left alone, `named_queue` which it names."""

    settings: AdmissionSettings = AdmissionSettings()
    skips: Callable[[str], bool] = lambda _namespace: False
    over_quota: OverQuota = lambda _asked: ""
    named_queue: Callable[[str], str] = lambda _namespace: ""
    reader: PodReader = read_pod
    nowhere: Callable[[PodRequest], Iterable[str]] = lambda _asked: ()
    """What a pod asks of cards that no card of the cluster has now, for its writer; raises what is refused for that."""

    bound: BoundCounts = lambda _pod, _asked: ()

    @property
    def _domain(self) -> str:
        return self.reader.settings.domain

    def answer(self, review: Review, *, change: bool = True) -> tuple[bytes, str]:
        """The answer, and in one word what was decided: `allowed`, or the code of the refusal.

        Without `change` the pod is judged as it is, and only refused or not: also for what would be taken off it.
        """
        if not (review.creates_pod or review.changes_pod) or self.skips(review.namespace):
            return review.allow(), "allowed"
        try:
            if review.changes_pod:
                self._check_unchanged(review)
                return review.allow(), "allowed"
            patch, warnings = self._admit(review, change=change)
            return review.allow(patch.operations if change else (), warnings), "allowed"
        except (_OverQuota, _ResultChanged) as error:
            return review.deny(_text(error), status=_TOO_MUCH), error.code
        except UllageError as error:
            return review.deny(_text(error), status=_INVALID), error.code
        except RecursionError:
            return review.deny("request.object: it is nested too deeply", status=_INVALID), "invalid-request"

    def _admit(self, review: Review, *, change: bool) -> tuple[Patch, tuple[str, ...]]:
        """The changes of a pod that may be created, and what its writer is told.

        Raises:
            UllageError: it may not.

        """
        pod, patch = review.pod, Patch(review.object or {})
        taken = tuple(self._forged(pod, text(review.namespace)))
        if taken and not change:
            raise _ResultChanged(f"metadata.annotations.{taken[0]}: only a scheduler writes it; leave it out")
        for key in taken:
            patch.remove("metadata", "annotations", key)
        removed = (f"metadata.annotations.{key}: only a scheduler writes it; it was taken off" for key in taken)
        unknown = tuple(unread(_annotations(pod), self._domain))
        warnings = *removed, *map(str, unknown), *map(str, unread_labels(_labels(pod), self._domain))
        spec = mapping(pod.get("spec"), "spec")
        if ignores(_labels(pod)) or not self._is_ours(spec):
            return patch, warnings
        self._check_misspelt(pod, unknown)
        if not spec.get("containers"):
            raise invalid("spec.containers", spec.get("containers"), "a pod has containers")
        self._gate_claims(patch, spec)
        clean = {**pod, "metadata": {**mapping(patch.document.get("metadata"), "metadata"), **_namespace(pod)}}
        asked = self.reader(clean)
        split = () if asked is None else asked.container_gpu_counts
        warnings = *warnings, *without_effect(clean, self.reader.settings.hami, split)
        warnings = *warnings, *other_words(clean, asked, self.reader.settings)
        if asked is None:
            return patch, (*warnings, *self._without_cards(clean))
        check_pod(clean, scheduler=self.settings.scheduler)
        if ask_for_bound(patch, clean, asked, self.bound(clean, asked)):
            clean = {**clean, "spec": patch.document["spec"]}
            asked = self.reader(clean) or asked
        if asked.dialect in (Dialect.OURS, Dialect.TENSOR_FUSION):
            check_admission(asked, pools=False)
        if refused := self.over_quota(asked):
            raise _OverQuota(refused)
        warnings = *warnings, *self.nowhere(asked)
        self._complete(patch, clean, asked)
        self._close_gate(patch, clean, text(review.namespace))
        return patch, (*warnings, *asked.warnings)

    def _without_cards(self, pod: Document) -> Iterator[str]:
        """Yield what a pod without cards asks for that nobody sees to."""
        for key in zone_words(pod, self._domain):
            fix = "pods without cards are not placed by zones; only the kubelet of their node aligns them"
            yield f"metadata.annotations.{key}: {fix}"

    def _check_misspelt(self, pod: Document, unknown: Iterable[Unread]) -> None:
        """Refuse what would be a request if it were spelt right: the pod would run with another, or with none.

        Raises:
            InvalidAnnotation: a key is like one of ours.

        """
        own = f"{self._domain}/"
        for each in unknown:
            if each.meant != each.key and each.key.startswith(own) and each.meant.startswith(own):
                fix = f"nobody reads it; did you mean {each.meant}?"
                raise invalid_annotation(each.key, _annotations(pod)[each.key], fix)

    def _check_unchanged(self, review: Review) -> None:
        """What a pod was given stays on it as it was written.

        Raises:
            UllageError: it was changed, taken off, or put on a pod that has none, and not by this process.

        """
        if self.settings.own_user and review.user_info.username == self.settings.own_user:
            return
        before, after = (_annotations(pod) for pod in (review.old_object, review.object))
        domain, hami = self._domain, self.settings.hami_users
        keys = [f"{domain}/{name}" for name in (OUTPUT if not self.settings.own_user else (*OUTPUT, *NOTES))]
        keys += HAMI_OUTPUT if hami and review.user_info.username not in hami else ()
        for key in keys:
            if before.get(key) != after.get(key):
                raise _ResultChanged(f"metadata.annotations.{key}: only its scheduler writes it; leave it as it is")
        gate = gate_of(domain)
        if self.settings.own_user and gate in _gates(review.old_object) and gate not in _gates(review.object):
            raise _ResultChanged(f"spec.schedulingGates: {gate} is opened when it is the turn of the pod; leave it")

    def _is_ours(self, spec: Document) -> bool:
        name = spec.get("schedulerName")
        if name == DEFAULT_SCHEDULER:
            return self.settings.overwrite_default
        return not name or name == self.settings.scheduler

    def _gate_claims(self, patch: Patch, spec: Document) -> None:
        """Have a pod wait for its claims, if it names our scheduler: of another one nobody knows whether it is ours."""
        ours = self.settings.scheduler and spec.get("schedulerName") == self.settings.scheduler
        if self.settings.claims_gate and ours and spec.get("resourceClaims") and not spec.get("nodeName"):
            patch.append("spec", "schedulingGates", value={"name": self.settings.claims_gate})

    def _forged(self, pod: Document, namespace: str) -> Iterator[str]:
        """Annotations that only whoever places a pod writes, and the gang of another namespace."""
        annotations = _annotations(pod)
        own = (f"{self._domain}/{name}" for name in (*OUTPUT, *NOTES))
        yield from (key for key in (*own, *HAMI_OUTPUT) if key in annotations)
        for domain in dict.fromkeys((self._domain, TENSOR_FUSION)):
            key = f"{domain}/gang-group-key"
            if key in annotations and not text(annotations[key]).startswith(f"{namespace}/"):
                yield key

    def _complete(self, patch: Patch, pod: Document, asked: PodRequest) -> None:
        """Write what the pod leaves open."""
        spec = mapping(pod.get("spec"), "spec")
        if self.settings.scheduler:
            patch.put("spec", "schedulerName", value=self.settings.scheduler)
        if self.settings.runtime_class and not spec.get("runtimeClassName"):
            patch.put("spec", "runtimeClassName", value=self.settings.runtime_class)
        for key, value in gang_annotations(asked).items():
            patch.put("metadata", "annotations", key, value=value)
        if asked.devices is not None:
            _complete_containers(patch, pod, asked.devices)

    def _close_gate(self, patch: Patch, pod: Document, namespace: str) -> None:
        """Have it wait for its turn, in the queue that it names, or its namespace does, or that bears that's name.

        Raises:
            InvalidRequest: it names a queue that is no queue's name, or that pods of its namespace may not name.

        """
        key = gate_of(self._domain)
        own, of_namespace = text(_labels(pod).get(key)), self.named_queue(namespace)
        if self.settings.queues == "off" or (self.settings.queues == "named" and not (own or of_namespace)):
            return
        if own:
            self._check_queue(own, of_namespace, f"metadata.labels.{key}")
        elif of_namespace:
            patch.put("metadata", "labels", key, value=of_namespace)
        patch.append("spec", "schedulingGates", value={"name": key})

    def _check_queue(self, own: str, of_namespace: str, field: str) -> None:
        check_name(field, own)
        parents = {queue.name: queue.parent for queue in self.settings.tree}
        line = own
        while of_namespace and line != of_namespace:
            if line not in parents:
                raise invalid(field, own, f"its namespace is in queue {of_namespace}: name that one or one below it")
            line = parents[line]
        if own == ROOT or own in parents.values():
            raise invalid(field, own, "it has queues below it; name one of those")


class _OverQuota(UllageError):
    code = "quota-exceeded"


class _ResultChanged(UllageError):
    code = "result-changed"


def _complete_containers(patch: Patch, pod: Document, devices: DeviceAsk) -> None:
    """The number of cards where only amounts are said, as device plugins hand out cards; and the priority."""
    spec, asks, words = mapping(pod.get("spec"), "spec"), iter(devices.containers), devices.words
    for kind in ("initContainers", "containers"):
        for position, (path, container) in enumerate(mappings(spec.get(kind), f"spec.{kind}")):
            ask, resources = next(asks), mapping(container.get("resources"), f"{path}.resources")
            said = (resources.get(amounts) or {} for amounts in ("limits", "requests"))
            if ask.count and not any(amounts.get(words.count) is not None for amounts in said):
                patch.put("spec", kind, position, "resources", "limits", words.count, value=str(ask.count))
            if ask.count and ask.task_priority is not None and not _has_variable(container, TASK_PRIORITY):
                variable = {"name": TASK_PRIORITY, "value": str(ask.task_priority)}
                patch.append("spec", kind, position, "env", value=variable)


def _has_variable(container: Document, name: str) -> bool:
    listed = container.get("env")
    return isinstance(listed, list) and any(isinstance(each, dict) and each.get("name") == name for each in listed)


def _annotations(pod: Document | None) -> Document:
    metadata = mapping((pod or {}).get("metadata"), "metadata")
    return mapping(metadata.get("annotations"), "metadata.annotations")


def _gates(pod: Document | None) -> list[str]:
    spec = mapping((pod or {}).get("spec"), "spec")
    return [text(gate.get("name")) for _, gate in mappings(spec.get("schedulingGates"), "spec.schedulingGates")]


def _labels(pod: Document) -> Document:
    return mapping(mapping(pod.get("metadata"), "metadata").get("labels"), "metadata.labels")


def _namespace(pod: Document) -> Document:
    return {"namespace": mapping(pod.get("metadata"), "metadata").get("namespace")}


def _text(error: UllageError) -> str:
    return f"{error.code}: {error.message}"
