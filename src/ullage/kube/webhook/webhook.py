"""Admission of pods: sets their scheduler, removes fields that users may not set, and refuses impossible requests.

The response depends only on the pod and the cluster state: nothing is stored, so dry runs and repeated calls behave
like any other. Annotations that only a scheduler writes are removed from a new pod, because they would be believed.
Later only the scheduler may write them, and the request of a pod is fixed once it is placed or admitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from ullage.kube.pod_cache import CachedReader
from ullage.kube.webhook.bound_cards import BoundCounts, ask_for_bound
from ullage.kube.webhook.words_to_claims import WordsToClaims
from ullage.model.error import InvalidRequest, UllageError, invalid
from ullage.model.name import check_name
from ullage.model.queue import ROOT, Queue
from ullage.wire.admission import Review
from ullage.wire.dialect import TENSOR_FUSION, PodReader, changed_keys, read_pod
from ullage.wire.direct_pods import check_direct, direct_scheduler
from ullage.wire.document import Document, mapping, mappings, section, text
from ullage.wire.hami.admission import check_pod, ignores
from ullage.wire.hami.mig import MIG_ALLOCATIONS, keeps_slices
from ullage.wire.hami.results import adds_devices, node_keys, result_keys
from ullage.wire.json_patch import JsonPatch
from ullage.wire.pod import Dialect, PodRequest, check_admission, gang_annotations
from ullage.wire.pod.alignment import zone_annotations
from ullage.wire.pod.bind import OUTPUT, REMOVED
from ullage.wire.pod.gate import GATE_ANNOTATIONS, gate_of
from ullage.wire.pod.keys import comma_list
from ullage.wire.pod.placement import DECISION
from ullage.wire.scheduler_fields import fields_for_scheduler
from ullage.wire.unknown_keys import unknown_annotations, unknown_labels
from ullage.wire.unread_words import check_misspelt, unread_resources
from ullage.wire.vendors.completion import hiding_variables, webhook_amounts, webhook_annotations, webhook_variables
from ullage.wire.vendors.container_request import FamilyRequest
from ullage.wire.vendors.family import Family

DEFAULT_SCHEDULER = "default-scheduler"
"""The scheduler name that an API server sets if a pod names none."""


_INVALID, _TOO_MUCH = 422, 403

Queueing = Literal["off", "named", "all"]
"""Which pods wait in a queue."""

OverQuota = Callable[[PodRequest], str]
"""Return why the quotas refuse one more such pod; "" if they do not."""


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """How pods are admitted. An empty `scheduler` or `runtime_class` leaves that of the pod unchanged.

    `overwrite_default`: pods of the default scheduler become ours too if they request cards. `queues` says which of
    them wait in a queue: none, those that name a queue or whose namespace does, or all. `tree` are the queues that are
    more than names. With `binds_itself` pods in a queue are bound without kube-scheduler, unless they need it.
    `claims_gate` is the gate behind which pods of our scheduler wait for their claims; "" for none.
    `claims_from_words` is the DeviceClass of claims into which requests for cards of NVIDIA are turned; "": they stay.
    `own_user` is the API user of this process: no other user may change what a scheduler wrote on a pod; "" disables
    the check. `hami_users` are HAMi's device plugin and its scheduler: if named, no other user may change what that
    plugin reads.
    """

    scheduler: str = "ullage"
    overwrite_default: bool = True
    runtime_class: str = ""
    queues: Queueing = "off"
    tree: tuple[Queue, ...] = ()
    binds_itself: bool = False
    claims_gate: str = ""
    claims_from_words: str = ""
    own_user: str = ""
    hami_users: tuple[str, ...] = ()

    @property
    def direct_scheduler(self) -> str:
        return direct_scheduler(self.scheduler)

    def is_own(self, name: object) -> bool:
        """Return whether the name of a scheduler is one of ours."""
        return bool(self.scheduler) and name in (self.scheduler, self.direct_scheduler)


@dataclass(frozen=True, slots=True)
class Webhook:
    """Answers reviews. `skips` returns whether a namespace is exempt, `named_queue` the queue that it names."""

    settings: AdmissionSettings = AdmissionSettings()
    skips: Callable[[str], bool] = lambda _namespace: False
    over_quota: OverQuota = lambda _asked: ""
    named_queue: Callable[[str], str] = lambda _namespace: ""
    reader: PodReader | CachedReader = read_pod
    nowhere: Callable[[PodRequest], Iterable[str]] = lambda _asked: ()
    """Return warnings on requests that no card of the cluster meets now. It raises if that refuses the pod."""

    bound: BoundCounts = lambda _pod, _asked: ()

    @property
    def _domain(self) -> str:
        return self.reader.settings.domain

    @property
    def _families(self) -> tuple[Family, ...]:
        return self.reader.settings.families

    def answer(self, review: Review, *, change: bool = True) -> tuple[bytes, str]:
        """Return the response, and the decision in one word: `allowed`, or the code of the refusal.

        Without `change` the pod is only validated. It is then also refused for fields that would otherwise be removed.
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

    def _admit(self, review: Review, *, change: bool) -> tuple[JsonPatch, tuple[str, ...]]:
        """Return the patch for a pod that may be created, and the warnings for its user.

        Raises:
            UllageError: the pod is refused.

        """
        pod, patch = review.pod, JsonPatch(review.object or {})
        removed = self._remove_forged(patch, review, change=change)
        unknown = tuple(unknown_annotations(_annotations(pod), self._domain, self._families))
        warnings = *removed, *map(str, unknown), *map(str, unknown_labels(_labels(pod), self._domain, self._families))
        spec = mapping(pod.get("spec"), "spec")
        if ignores(_labels(pod)) or not self._is_ours(spec):
            return patch, warnings
        check_misspelt(pod, self.reader.settings, unknown)
        if not spec.get("containers"):
            raise invalid("spec.containers", spec.get("containers"), "a pod has containers")
        self._gate_claims(patch, spec)
        clean = {**pod, "metadata": {**mapping(patch.document.get("metadata"), "metadata"), **_namespace(pod)}}
        asked = self.reader(clean)
        warnings = *warnings, *unread_resources(clean, asked, self.reader.settings)
        if self._names_direct(spec):
            check_direct(clean, asked, self.reader.settings, self.settings.scheduler)
        if asked is None:
            self._hide_cards(patch, clean)
            return patch, (*warnings, *self._without_cards(clean))
        check_pod(clean, scheduler=self.settings.scheduler)
        if not asked.further and ask_for_bound(patch, clean, asked, self.bound(clean, asked)):
            clean = {**clean, "spec": patch.document["spec"]}
            asked = self.reader(clean) or asked
        if asked.dialect in (Dialect.OURS, Dialect.TENSOR_FUSION):
            check_admission(asked, pools=False)
        if refused := next(filter(None, map(self.over_quota, asked.by_family)), ""):
            raise _OverQuota(refused)
        warnings = *warnings, *(warning for each in asked.by_family for warning in self.nowhere(each))
        self._complete(patch, clean, asked, review.uid)
        self._enter_queue(patch, clean, text(review.namespace))
        return patch, (*warnings, *asked.warnings)

    def _remove_forged(self, patch: JsonPatch, review: Review, *, change: bool) -> tuple[str, ...]:
        """Remove the annotations that only a scheduler writes, and return the warnings about them.

        Raises:
            UllageError: there are some, and nothing may be changed.

        """
        taken = tuple(self._forged(review.pod, text(review.namespace)))
        if taken and not change:
            raise _ResultChanged(f"metadata.annotations.{taken[0]}: only a scheduler writes it; leave it out")
        for name in taken:
            patch.remove("metadata", "annotations", name)
        if taken:
            key = f"{self._domain}/{REMOVED}"
            before = comma_list(text(_annotations(review.pod).get(key)))  # of an earlier call for the same pod
            patch.put("metadata", "annotations", key, value=",".join(dict.fromkeys((*before, *taken))))
        return tuple(f"metadata.annotations.{name}: only a scheduler writes it; it was removed" for name in taken)

    def _without_cards(self, pod: Document) -> Iterator[str]:
        """Yield annotations and labels that have no effect on a pod without cards."""
        scheduler = self.settings.scheduler
        if scheduler and section(pod, "spec").get("schedulerName") == scheduler:
            return
        for key in zone_annotations(pod, self._domain):
            fix = (
                f"spec.schedulerName is not {scheduler or 'that of Ullage'}, so only the kubelet of its node aligns it"
            )
            yield f"metadata.annotations.{key}: {fix}"

    def _check_unchanged(self, review: Review) -> None:
        """Check that the placement annotations of a pod are unchanged, and its request where it is fixed.

        Raises:
            UllageError: they were changed, removed, or added, and not by this process.

        """
        if self.settings.own_user and review.user_info.username == self.settings.own_user:
            return
        self._check_results(review)
        self._check_record(review)
        self._check_request(review)

    def _check_results(self, review: Review) -> None:
        before, after = (_annotations(pod) for pod in (review.old_object, review.object))
        domain, hami = self._domain, self.settings.hami_users
        keys = [f"{domain}/{name}" for name in (OUTPUT if not self.settings.own_user else (*OUTPUT, *GATE_ANNOTATIONS))]
        keys += result_keys(self._families) if hami and review.user_info.username not in hami else ()
        keys += [DECISION] if self._is_fixed(review.old_object or {}, ours=True) else []
        for key in keys:
            if before.get(key) != after.get(key):
                raise _ResultChanged(f"metadata.annotations.{key}: only its scheduler writes it; leave it as it is")
        gate = gate_of(domain)
        if self.settings.own_user and gate in _gates(review.old_object) and gate not in _gates(review.object):
            raise _ResultChanged(f"spec.schedulingGates: {gate} is removed when the queue admits the pod; keep it")

    def _check_record(self, review: Review) -> None:
        """Check that a pod on a node keeps the cards that HAMi's annotations name, where their writers are not known.

        Raises:
            UllageError: they name another node, fewer cards, or less of one; or cards of a pod that had none.

        """
        if self.settings.hami_users or not _node_of(review.old_object):
            return
        before, after = (_annotations(pod) for pod in (review.old_object, review.object))
        for key in changed_keys(before, after, tuple(self._record_keys(before, after))):
            fix = "the pod is on its node and keeps the cards that were recorded; restore it, or create another pod"
            raise _ResultChanged(f"metadata.annotations.{key}: {fix}")

    def _record_keys(self, before: Document, after: Document) -> Iterator[str]:
        """Yield the annotations that have to stay as they are: devices may only be added to those of a pod."""
        yield from node_keys(self._families)
        if before.get(MIG_ALLOCATIONS) and not keeps_slices(before[MIG_ALLOCATIONS], after.get(MIG_ALLOCATIONS)):
            yield MIG_ALLOCATIONS
        for results in (family.results for family in self._families):
            allocated = results.allocated
            if not before.get(allocated) or not adds_devices(before[allocated], after.get(allocated), results):
                yield allocated
            if results.to_allocate and not (before.get(allocated) or before.get(results.to_allocate)):
                yield results.to_allocate

    def _check_request(self, review: Review) -> None:
        """Check that a pod which was placed or admitted asks for the same; one that is unreadable may be corrected.

        Raises:
            UllageError: an annotation or a label of its request was changed, removed, or added.

        """
        old, new, settings = review.old_object or {}, review.object or {}, self.reader.settings
        if not self._is_fixed(old):
            return
        words = changed_keys(_annotations(old), _annotations(new), settings.annotations)
        labels = changed_keys(_labels(old), _labels(new), settings.labels)
        field = next(chain((f"annotations.{key}" for key in words), (f"labels.{key}" for key in labels)), "")
        if field and (self._reads(old) or not self._reads(new)):
            node = _node_of(old)
            state = f"it is on {node}" if node else "it was admitted"
            fix = "a pod keeps what it asks for; delete it, and create another one with the new value"
            raise _RequestChanged(f"metadata.{field}: {state}, and {fix}")

    def _is_fixed(self, pod: Document, *, ours: bool = False) -> bool:
        """Return whether a pod is on a node, or is one of ours that no gate holds back; only one of `ours` if so."""
        spec = mapping(pod.get("spec"), "spec")
        own = self.settings.is_own(spec.get("schedulerName"))
        return (own and not _gates(pod)) or (bool(_node_of(pod)) and not ours)

    def _reads(self, pod: Document) -> bool:
        try:
            self.reader(pod)
        except InvalidRequest:
            return False
        return True

    def _is_ours(self, spec: Document) -> bool:
        name = spec.get("schedulerName")
        if name == DEFAULT_SCHEDULER:
            return self.settings.overwrite_default
        return not name or self.settings.is_own(name)

    def _names_direct(self, spec: Document) -> bool:
        return bool(self.settings.scheduler) and spec.get("schedulerName") == self.settings.direct_scheduler

    def _gate_claims(self, patch: JsonPatch, spec: Document) -> None:
        """Gate a pod until its claims are allocated, if it names our scheduler. Other schedulers may not be ours."""
        ours = self.settings.scheduler and spec.get("schedulerName") == self.settings.scheduler
        if self.settings.claims_gate and ours and spec.get("resourceClaims") and not spec.get("nodeName"):
            patch.append("spec", "schedulingGates", value={"name": self.settings.claims_gate})

    def _forged(self, pod: Document, namespace: str) -> Iterator[str]:
        """Yield annotations that only a scheduler may write, and the gang of another namespace."""
        annotations = _annotations(pod)
        own = (f"{self._domain}/{name}" for name in (*OUTPUT, *GATE_ANNOTATIONS) if name != REMOVED)
        yield from (key for key in (*own, *result_keys(self._families), DECISION) if key in annotations)
        for domain in dict.fromkeys((self._domain, TENSOR_FUSION)):
            key = f"{domain}/gang-group-key"
            if key in annotations and not text(annotations[key]).startswith(f"{namespace}/"):
                yield key

    def _complete(self, patch: JsonPatch, pod: Document, asked: PodRequest, review: str) -> None:
        spec, claims = mapping(pod.get("spec"), "spec"), WordsToClaims(self.settings.claims_from_words, self._domain)
        if self.settings.scheduler and not self._names_direct(spec):
            patch.put("spec", "schedulerName", value=self.settings.scheduler)
        if claims.applies(asked):
            claims.turn(patch, pod, asked, review)
            self._gate_claims(patch, patch.document["spec"])
            return
        devices = [each.devices for each in asked.by_family if each.devices is not None]
        of_families = (each.family.webhook.runtime_class for each in devices)
        runtime_class = next(filter(None, of_families), self.settings.runtime_class)
        if runtime_class and not spec.get("runtimeClassName"):
            patch.put("spec", "runtimeClassName", value=runtime_class)
        for key, value in gang_annotations(asked).items():
            patch.put("metadata", "annotations", key, value=value)
        for each in devices:
            _complete_containers(patch, pod, each)
        if asked.dialect not in (Dialect.OURS, Dialect.TENSOR_FUSION):  # these name no containers
            self._hide_cards(patch, pod)

    def _hide_cards(self, patch: JsonPatch, pod: Document) -> None:
        """Write the environment that hides cards from containers which request none, if a family is set so.

        A container that states the variable itself, or has a claim, is left as it is.
        """
        if not any(family.webhook.hides_cards for family in self._families):
            return
        spec = mapping(pod.get("spec"), "spec")
        for kind in ("initContainers", "containers"):
            for position, (path, container) in enumerate(mappings(spec.get(kind), f"spec.{kind}")):
                resources = mapping(container.get("resources"), f"{path}.resources")
                if resources.get("claims"):
                    continue
                stated = {name for amounts in ("limits", "requests") for name in resources.get(amounts) or {}}
                for name, value in hiding_variables(self._families, stated).items():
                    if not _has_variable(container, name):
                        patch.append("spec", kind, position, "env", value={"name": name, "value": value})

    def _enter_queue(self, patch: JsonPatch, pod: Document, namespace: str) -> None:
        """Have a pod wait in the queue that it names, or its namespace names, or that has the name of its namespace.

        It has a gate unless this process binds it.

        Raises:
            InvalidRequest: it names an invalid queue, or one that pods of its namespace may not name.

        """
        key = gate_of(self._domain)
        own, of_namespace = text(_labels(pod).get(key)), self.named_queue(namespace)
        if self.settings.queues == "off" or (self.settings.queues == "named" and not (own or of_namespace)):
            return
        if own:
            self._check_queue(own, of_namespace, f"metadata.labels.{key}")
        elif of_namespace:
            patch.put("metadata", "labels", key, value=of_namespace)
        spec = mapping(patch.document.get("spec"), "spec")
        if self.settings.binds_itself and not any(fields_for_scheduler(patch.document, self.reader.settings)):
            patch.put("spec", "schedulerName", value=self.settings.direct_scheduler)
        elif not self._names_direct(spec):
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


class _RequestChanged(UllageError):
    code = "request-changed"


def _complete_containers(patch: JsonPatch, pod: Document, devices: FamilyRequest) -> None:
    """Write the amounts that device plugins have to see, the environment, and annotations that a family needs."""
    spec, requests, family = mapping(pod.get("spec"), "spec"), iter(devices.containers), devices.family
    for kind in ("initContainers", "containers"):
        for position, (path, container) in enumerate(mappings(spec.get(kind), f"spec.{kind}")):
            request, resources = next(requests), mapping(container.get("resources"), f"{path}.resources")
            if not request.count:
                continue
            stated = {name for amounts in ("limits", "requests") for name in resources.get(amounts) or {}}
            of_container = "spec", kind, position, "resources"
            for name, value in webhook_amounts(family, request, stated).items():
                patch.put(*of_container, "limits", name, value=value)
                if name in (resources.get("requests") or {}):
                    patch.put(*of_container, "requests", name, value=value)
            for name, value in webhook_variables(family, request).items():
                if not _has_variable(container, name):
                    patch.append("spec", kind, position, "env", value={"name": name, "value": value})
    for key, value in webhook_annotations(family, devices.containers).items():
        if key not in _annotations(pod):
            patch.put("metadata", "annotations", key, value=value)


def _has_variable(container: Document, name: str) -> bool:
    listed = container.get("env")
    return isinstance(listed, list) and any(isinstance(each, dict) and each.get("name") == name for each in listed)


def _annotations(pod: Document | None) -> Document:
    metadata = mapping((pod or {}).get("metadata"), "metadata")
    return mapping(metadata.get("annotations"), "metadata.annotations")


def _node_of(pod: Document | None) -> str:
    return text(mapping((pod or {}).get("spec"), "spec").get("nodeName"))


def _gates(pod: Document | None) -> list[str]:
    spec = mapping((pod or {}).get("spec"), "spec")
    return [text(gate.get("name")) for _, gate in mappings(spec.get("schedulingGates"), "spec.schedulingGates")]


def _labels(pod: Document) -> Document:
    return mapping(mapping(pod.get("metadata"), "metadata").get("labels"), "metadata.labels")


def _namespace(pod: Document) -> Document:
    return {"namespace": mapping(pod.get("metadata"), "metadata").get("namespace")}


def _text(error: UllageError) -> str:
    return f"{error.code}: {error.message}"
