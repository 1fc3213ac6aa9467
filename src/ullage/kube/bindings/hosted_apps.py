"""Applications in the cluster: the workloads with their label, what these request, and how they start and stop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ullage.kube.client.changes import Patch
from ullage.kube.client.kinds import DEPLOYMENTS, STATEFUL_SETS, Kind
from ullage.kube.client.objects import Namespace, Object
from ullage.model.binding import Consume, Tenant
from ullage.model.compute import NVIDIA, AppKey, AppState, ComputeRequirement, HostedApp
from ullage.model.compute_result import Problem
from ullage.model.error import InvalidRequest, UllageError, invalid
from ullage.wire.compute_resources import WrittenRequirement, requirement_of
from ullage.wire.document import Document, mapping, text
from ullage.wire.gpubinding import APP_LABEL, MODE_LABEL, OWNER_LABEL, consume_of, tenant_of
from ullage.wire.kubernetes_quantity import parse_quantity
from ullage.wire.pod import DOMAIN, ReadPod

INSTALL_USER = "applications.app.bytetrade.io/install_user"
"""The namespace label that names the owner of the shared server running there."""

REQUIREMENTS = f"{DOMAIN}/compute-requirements"
"""The workload annotation with the ways in which its application can run, as a JSON list."""

STATE = f"{DOMAIN}/app-state"
"""The workload annotation with the state of its application. Without it the state follows from the replicas."""

MODE = f"{DOMAIN}/compute-mode"
REPLICAS = f"{DOMAIN}/replicas"
_STARTED = f"{DOMAIN}/started-for"
_REQUIRED, _LIMITED = (f"gpu.bytetrade.io/{name}-gpu-memory" for name in ("required", "limited"))

WORKLOADS: tuple[Kind[Object], ...] = (DEPLOYMENTS, STATEFUL_SETS)


class HostedApps:
    """Builds applications from the informers of workloads and namespaces."""

    def __init__(self, read_pod: ReadPod) -> None:
        self._read_pod = read_pod
        self._read: dict[tuple[str, str], _Workload] = {}

    def apps(
        self,
        workloads: Iterable[tuple[Kind[Object], Object]],
        namespaces: Mapping[tuple[str, str], Namespace],
        running: Iterable[tuple[str, str, str]],
    ) -> tuple[tuple[HostedApp, ...], list[Problem]]:
        """Return the applications and the parse errors. An application in `running` may have pods only, no workload."""
        found: defaultdict[AppKey, list[Object]] = defaultdict(list)
        for _, each in workloads:
            key = app_key(each, namespaces)
            if key is not None:
                found[key].append(each)
        problems: list[Problem] = []
        apps = {key: self._app(key, some, namespaces, problems) for key, some in found.items()}
        for name in running:
            apps.setdefault(AppKey(*name), HostedApp(AppKey(*name)))
        return tuple(apps.values()), problems

    def _app(
        self,
        key: AppKey,
        workloads: list[Object],
        namespaces: Mapping[tuple[str, str], Namespace],
        problems: list[Problem],
    ) -> HostedApp:
        workloads.sort(key=lambda each: each.metadata.name)
        read = [self._workload(each) for each in workloads]
        for each, found in zip(workloads, read, strict=True):
            if found.error_text:
                problems.append(Problem(f"{each.metadata.namespace}/{each.metadata.name}", found.error_text))
        notes = [each.metadata.annotations or {} for each in workloads]
        first = next(iter(workloads)).metadata
        return HostedApp(
            key,
            next((note[STATE] for note in notes if note.get(STATE)), "") or _state(read),
            first.uid,
            requirements=next((found.requirements for found in read if found.requirements), ()),
            accelerator=next((note[MODE] for note in notes if note.get(MODE)), ""),
            labels=dict(first.labels or {}),
            shared_server=bool(install_user(namespaces.get(("", key.namespace)))),
            unreadable="; ".join(dict.fromkeys(found.error_text for found in read if found.error_text)),
            one_card_per_pod=all(found.one_card_per_pod for found in read),
        )

    def _workload(self, found: Object) -> _Workload:
        known = self._read.get(found.state)
        if known is None:
            if len(self._read) > _REMEMBERED:
                self._read.clear()
            known = self._read[found.state] = _workload(found, self._read_pod)
        return known


_REMEMBERED = 16_384


@dataclass(frozen=True, slots=True)
class _Workload:
    """The ways to run of one workload, or their parse error; its desired, existing and ready replicas.

    `one_card_per_pod`: each pod takes one of the bound cards.
    """

    requirements: tuple[ComputeRequirement, ...]
    error_text: str
    wanted: int
    there: int
    well: int
    one_card_per_pod: bool


def _workload(found: Object, read_pod: ReadPod) -> _Workload:
    status, error_text = found.document.get("status") or {}, ""
    requirements: tuple[ComputeRequirement, ...] = ()
    try:
        requirements = _requirements(found, read_pod)
    except UllageError as error:
        error_text = error.message
    there, well = _number(status.get("replicas")), _number(status.get("readyReplicas"))
    one_card_per_pod = _takes_singly(found, read_pod)
    return _Workload(requirements, error_text, replicas_of(found), there, well=well, one_card_per_pod=one_card_per_pod)


def _takes_singly(workload: Object, read_pod: ReadPod) -> bool:
    """Return whether each pod of a workload takes one bound card. An unreadable pod takes all of them."""
    try:
        pod = _pod_of(workload)
        if consume_of(tenant_of(pod)) is not Consume.SINGLE:
            return False
        asked = read_pod(pod)
    except UllageError:
        return False
    return asked is None or asked.requirement.gpu_count == 1


def _pod_of(workload: Object) -> Document:
    template = mapping(mapping(workload.document.get("spec"), "spec").get("template"), "spec.template")
    metadata = mapping(template.get("metadata"), "spec.template.metadata")
    return {"metadata": metadata, "spec": template.get("spec") or {}}


def app_key(workload: Object, namespaces: Mapping[tuple[str, str], Namespace]) -> AppKey | None:
    """Return the application of a workload. A shared server belongs to the owner that its namespace names."""
    labels, space = workload.metadata.labels or {}, workload.metadata.namespace
    name = labels.get(APP_LABEL)
    if not name:
        return None
    return AppKey(name, labels.get(OWNER_LABEL) or install_user(namespaces.get(("", space))), space)


def tenant_in(pod: Document, namespaces: Mapping[tuple[str, str], Namespace]) -> Tenant:
    """Return the tenant of a pod. The pod of a shared server without an owner belongs to that of its namespace.

    Raises:
        InvalidRequest: its labels are not strings.

    """
    found = tenant_of(pod)
    return found if found.owner else replace(found, owner=install_user(namespaces.get(("", found.namespace))))


def starting(kind: Kind[Object], workload: Object, accelerator: str, cards: str) -> Patch:
    """Return the patch that scales a workload to its replicas before it was stopped, or to 1.

    Pods that run on other `cards` are replaced. `cards` is a text that differs for other cards.
    """
    notes = workload.metadata.annotations or {}
    spec: dict[str, Any] = {"template": _template(cards)}
    if not replicas_of(workload):
        spec["replicas"] = max(1, _number(notes.get(REPLICAS)))
    return _patch(kind, workload, {MODE: accelerator or None}, {"spec": spec})


def stopping(kind: Kind[Object], workload: Object) -> Patch | None:
    """Return the patch that scales a workload to 0; None if it has no replicas."""
    before = replicas_of(workload)
    return _patch(kind, workload, {REPLICAS: str(before)}, {"spec": {"replicas": 0}}) if before else None


def restarting(kind: Kind[Object], workload: Object, cards: str) -> Patch | None:
    """Return the patch that recreates all pods of a workload, once for each text `cards`; None if already done."""
    template = mapping(mapping(workload.document.get("spec"), "spec").get("template"), "spec.template")
    notes = mapping(mapping(template.get("metadata"), "metadata").get("annotations"), "annotations")
    if notes.get(_STARTED) == cards:
        return None
    return _patch(kind, workload, {}, {"spec": {"template": _template(cards)}})


def _template(cards: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {_STARTED: cards}}}


def _patch(kind: Kind[Object], workload: Object, notes: Mapping[str, str | None], rest: dict[str, Any]) -> Patch:
    body = {"metadata": {"annotations": dict(notes)} if notes else {}, **rest}
    return Patch(kind, workload.metadata.name, body, workload.metadata.namespace)


def _state(workloads: Sequence[_Workload]) -> str:
    """Return the state of an application from its desired, existing and ready replicas."""
    wanted, there, well = (sum(getattr(each, name) for each in workloads) for name in ("wanted", "there", "well"))
    if not wanted:
        return AppState.STOPPING if there else AppState.STOPPED
    return AppState.RUNNING if well >= wanted else AppState.INITIALIZING


def scaled(kind: Kind[Object], workload: Object, replicas: int) -> Patch:
    return _patch(kind, workload, {}, {"spec": {"replicas": replicas}})


def replicas_of(workload: Object) -> int:
    replicas = (workload.document.get("spec") or {}).get("replicas")
    return 1 if replicas is None else _number(replicas)


def _number(value: object) -> int:
    digits = text(value)
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS else 0


_DIGITS = 9
"""Maximum number of digits of a replica count, which has 32 bits."""


def install_user(namespace: Namespace | None) -> str:
    """Return the owner of the shared server in a namespace; "" for none."""
    return "" if namespace is None else (namespace.metadata.labels or {}).get(INSTALL_USER, "")


def _requirements(workload: Object, read_pod: ReadPod) -> tuple[ComputeRequirement, ...]:
    """Return the ways in which an application can run: from its annotation, else from its pods."""
    annotation = (workload.metadata.annotations or {}).get(REQUIREMENTS)
    if annotation:
        try:
            bodies = msgspec.json.decode(annotation, type=list[WrittenRequirement])
            found = tuple(requirement_of(each) for each in bodies)
        except (msgspec.MsgspecError, RecursionError) as error:
            fix = f'write a JSON list such as [{{"mode": "nvidia", "requiredGpu": 8589934592}}] ({error})'
            raise invalid(REQUIREMENTS, annotation[:80], fix) from None
        except InvalidRequest as error:
            raise InvalidRequest(f"{REQUIREMENTS}: {error.message}", field=REQUIREMENTS) from None
        if not found:
            raise invalid(REQUIREMENTS, annotation, "name at least one way to run, or remove the annotation")
        return found
    asked = _asked(workload, read_pod)
    return () if asked is None else (asked,)


def _asked(workload: Object, read_pod: ReadPod) -> ComputeRequirement | None:
    pod = _pod_of(workload)
    notes, labels = (mapping(pod["metadata"].get(name), name) for name in ("annotations", "labels"))
    mode = text(labels.get(MODE_LABEL)) or text((workload.metadata.labels or {}).get(MODE_LABEL))
    asked = read_pod(pod)
    required, limited = (_bytes(notes, key) for key in (_REQUIRED, _LIMITED))
    if asked is None and not required:
        return None
    part, count = (None, 1) if asked is None else (asked.requirement.part, asked.requirement.gpu_count)
    vram = required or (0 if part is None else part.vram_bytes * count)
    cpu, memory = (0, 0) if asked is None else (asked.requirement.cpu_milli, asked.requirement.memory_bytes)
    return ComputeRequirement(
        mode or NVIDIA, vram, limited, cpu_milli=cpu, memory_bytes=memory, several_cards=count > 1
    )


def _bytes(notes: Document, key: str) -> int:
    return parse_quantity(notes[key], key) if key in notes else 0


def parts_of(
    app: AppKey,
    workloads: Iterable[tuple[Kind[Object], Object]],
    namespaces: Mapping[tuple[str, str], Namespace],
) -> Iterator[tuple[Kind[Object], Object]]:
    return ((kind, each) for kind, each in workloads if app_key(each, namespaces) == app)
