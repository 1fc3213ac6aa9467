"""What an API server makes of a write: identity, versions, conflicts, and how things end."""

import random
import re
import string
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.kube.selection import matches
from tests.kube.store import Item, Key, Store
from ullage.kube.client import kinds

KINDS = {
    kind.plural: kind
    for kind in (
        kinds.PODS,
        kinds.NODES,
        kinds.NAMESPACES,
        kinds.EVENTS,
        kinds.LEASES,
        kinds.POD_DISRUPTION_BUDGETS,
        kinds.RESOURCE_QUOTAS,
        kinds.GPU_BINDINGS,
        kinds.NUMATOPOLOGIES,
        kinds.NODE_RESOURCE_TOPOLOGIES[0],
        kinds.CONFIG_MAPS,
        kinds.DEPLOYMENTS,
        kinds.STATEFUL_SETS,
        kinds.TOKEN_REVIEWS,
        kinds.SERVICES,
        kinds.POD_GROUPS,
        kinds.HYPERNODES,
        kinds.KAI_TOPOLOGIES,
        kinds.RESOURCE_SLICES,
        kinds.DEVICE_CLASSES,
        kinds.RESOURCE_CLAIMS,
        kinds.DEVICE_TAINT_RULES[1],
    )
}
CUSTOM = {"gpubindings", "numatopologies", "noderesourcetopologies", "podgroups", "hypernodes", "topologies"}
STATUS = {
    "pods",
    "nodes",
    "namespaces",
    "poddisruptionbudgets",
    "deployments",
    "statefulsets",
    "resourceclaims",
}  # have a subresource of that name
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_KEPT = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "namespace", "name")
_CONTAINERS = "containers", "initContainers"
_FINISHED = ("Succeeded", "Failed")


class Refused(Exception):
    """A Status of failure."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


def conflict(message: str) -> Refused:
    return Refused(409, "Conflict", message)


def bad(message: str, code: int = 422, reason: str = "Invalid") -> Refused:
    return Refused(code, reason, message)


class Rules:
    """Writes on a store, which raise Refused. Only `evict` may have changed something then: the budget it used up."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.tokens: dict[str, Item] = {}  # the users of tokens, as a token review returns them

    def get(self, key: Key) -> Item:
        found = self.store.get(key)
        if found is None:
            raise Refused(404, "NotFound", f'{key[0]} "{key[2]}" not found')
        return found

    def create(self, plural: str, namespace: str, body: Mapping[str, Any]) -> Item:
        if plural == "tokenreviews":  # it is answered, and not kept
            user = self.tokens.get(body["spec"]["token"])
            return {"metadata": {}, "status": {"authenticated": True, "user": user} if user else {}}
        item = self._prepared(plural, namespace, body)
        key = (plural, namespace, item["metadata"]["name"])
        if self.store.get(key) is not None:
            raise Refused(409, "AlreadyExists", f'{plural} "{key[2]}" already exists')
        return self.store.put(key, item)

    def _prepared(self, plural: str, namespace: str, body: Mapping[str, Any]) -> Item:
        """An object as it will be created: named, and with what the server fills in."""
        if namespace:
            self.get(("namespaces", "", namespace))
        metadata = dict(body.get("metadata") or {})
        if metadata.setdefault("namespace", namespace) != namespace:
            raise bad("the namespace of the object does not match the namespace on the request", 400, "BadRequest")
        if not namespace:
            del metadata["namespace"]
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + "".join(random.choices(string.ascii_lowercase, k=5))
        if not _NAME.fullmatch(metadata.get("name") or ""):
            raise bad("metadata.name: a lowercase RFC 1123 subdomain, or generateName, is required")
        for given in ("resourceVersion", "deletionTimestamp", "selfLink"):
            metadata.pop(given, None)
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": _time(), "generation": 1}
        kind = KINDS[plural]
        item = {**body, "apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
        return defaulted(plural, item)

    def replace(self, key: Key, body: Mapping[str, Any], subresource: str = "") -> Item:
        """Put `body` in place of an object. A lease that is not there is made, unless a certain one was meant."""
        metadata = body.get("metadata") or {}
        if key[0] == "leases" and self.store.get(key) is None and not metadata.get("uid"):
            return self.create(key[0], key[1], body)
        old = self.store.get(key)
        if metadata.get("uid") and (old or {}).get("metadata", {}).get("uid") != metadata["uid"]:
            raise conflict(f"Precondition failed: UID in precondition: {metadata['uid']}")
        return self.change(key, lambda _: body, subresource)

    def change(self, key: Key, make: Callable[[Item], Any], subresource: str = "") -> Item:
        """Put what `make` makes of an object in its place. Nothing new is written where nothing changed."""
        plural = key[0]
        if subresource == "status" and plural not in STATUS:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        old = self.get(key)
        new = make(old)
        metadata, was = dict(new.get("metadata") or {}), old["metadata"]
        if metadata.get("name", was["name"]) != was["name"]:
            raise bad("the name of the object does not match the name on the URL", 400, "BadRequest")
        if metadata.get("uid", was["uid"]) != was["uid"]:
            raise bad(f'metadata.uid: Invalid value: "{metadata["uid"]}": field is immutable')
        version = metadata.get("resourceVersion")
        if plural in CUSTOM and not version:
            raise bad("metadata.resourceVersion: Invalid value: 0x0: must be specified for an update")
        if version and version != was["resourceVersion"]:
            raise conflict(f'Operation cannot be fulfilled on {plural} "{key[2]}": the object has been modified')
        if plural == "leases" and (new.get("spec") or {}).get("leaseDurationSeconds", 1) <= 0:
            raise bad("spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0")
        metadata |= {name: was[name] for name in _KEPT if name in was}
        item = {**new, "apiVersion": old["apiVersion"], "kind": old["kind"], "metadata": metadata}
        item = self._bounded(plural, old, item, subresource)
        item["metadata"]["resourceVersion"] = was["resourceVersion"]
        item["metadata"]["generation"] = was["generation"] + (item.get("spec") != old.get("spec"))
        if item == old:
            return old
        ended = "deletionTimestamp" in was and not item["metadata"].get("finalizers")
        if ended and not was.get("deletionGracePeriodSeconds"):
            return self.store.put(key, None)
        return self.store.put(key, item)

    def _bounded(self, plural: str, old: Item, item: Item, subresource: str) -> Item:
        """Through its subresource only the status changes, and else only the rest; most of a pod's spec never does.

        Labels and annotations change through both.
        """
        if plural == "resourceclaims":
            _check_claim(old, item, subresource)
        if subresource == "status":
            return {**old, "metadata": item["metadata"], "status": item.get("status") or {}}
        if plural in STATUS:
            item = {**item, "status": old.get("status", {})}
        if plural == "pods" and _fixed(item.get("spec") or {}) != _fixed(old["spec"]):
            raise bad("spec: Forbidden: pod updates may not change fields other than image and tolerations")
        if plural == "pods" and not _gates(item) <= _gates(old):
            raise bad("spec.schedulingGates: Forbidden: only deletion is allowed, but found new scheduling gates")
        return item

    def delete(self, key: Key, options: Mapping[str, Any]) -> Item:
        """Delete now, or mark what ends later: a pod on a node in its time, others when no finalizer is left.

        A pod is always marked first, so that a watch tells two events.
        """
        old = self.get(key)
        metadata = old["metadata"]
        for field, wanted in (options.get("preconditions") or {}).items():
            if metadata[field] != wanted:
                raise conflict(f"Precondition failed: {field} in precondition: {wanted}, in object: {metadata[field]}")
        grace = _grace(old, options) if key[0] == "pods" else 0
        ends = not grace and not metadata.get("finalizers")
        if ends and key[0] != "pods":
            return self.store.put(key, None)
        left = metadata.get("deletionGracePeriodSeconds")
        if "deletionTimestamp" not in metadata or left is None or left > grace:
            marked = {"deletionTimestamp": _time(grace), "deletionGracePeriodSeconds": grace}
            old = self.store.put(key, {**old, "metadata": metadata | marked})
        return self.store.put(key, None) if ends else old

    def bind(self, namespace: str, name: str, binding: Mapping[str, Any]) -> None:
        """Give a pod its node, and the annotations of the binding, once."""
        key = ("pods", namespace, name)
        pod, metadata = self.get(key), binding.get("metadata") or {}
        is_now = pod["metadata"]
        for field in ("uid", "resourceVersion"):
            if metadata.get(field) and metadata[field] != is_now[field]:
                raise conflict(f"Precondition failed: {field} in precondition: {metadata[field]}")
        if "deletionTimestamp" in is_now:
            raise conflict(f"pod {name} is being deleted, cannot be assigned to a host")
        if pod["spec"].get("nodeName"):
            raise conflict(f"pod {name} is already assigned to node {pod['spec']['nodeName']!r}")
        if pod["spec"].get("schedulingGates"):
            raise conflict(f"pod {name} has non-empty .spec.schedulingGates")
        notes = (is_now.get("annotations") or {}) | (metadata.get("annotations") or {})
        placed = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": _time()}]
        self.store.put(
            key,
            {
                **pod,
                "metadata": is_now | ({"annotations": notes} if notes else {}),
                "spec": pod["spec"] | {"nodeName": binding["target"]["name"]},
                "status": pod["status"] | {"conditions": placed},
            },
        )

    def evict(self, namespace: str, name: str, options: Mapping[str, Any]) -> None:
        """Delete a pod if its budget, where it has one, allows one more disruption."""
        pod = self.get(("pods", namespace, name))
        dry = "All" in (options.get("dryRun") or ())
        counted = pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        budgets = [
            (key, item)
            for key, item in self.store.at(self.store.revision).items()
            if key[:2] == ("poddisruptionbudgets", namespace) and matches(item["spec"].get("selector"), pod)
        ]
        if counted and len(budgets) > 1:
            raise Refused(500, "InternalError", "This pod has more than one PodDisruptionBudget")
        for key, budget in budgets if counted else ():
            status, desired = budget["status"], budget["status"].get("desiredHealthy", 0)
            if not _ready(pod) and 0 < desired <= status.get("currentHealthy", 0):
                continue  # it is not one of those that the budget counts on
            stale = status.get("observedGeneration", 0) < budget["metadata"]["generation"]
            if stale or not status["disruptionsAllowed"]:
                message = "Cannot evict pod as it would violate the pod's disruption budget."
                raise Refused(429, "TooManyRequests", message)
            if not dry:
                left = status["disruptionsAllowed"] - 1
                self.store.put(key, {**budget, "status": status | {"disruptionsAllowed": left}})
        if not dry:
            self.delete(("pods", namespace, name), options)


def _qos(spec: Mapping[str, Any]) -> str:
    """The class of a pod; one that is not Guaranteed counts as BestEffort."""
    each = [container.get("resources") or {} for name in _CONTAINERS for container in spec.get(name) or ()]
    whole = all(name in (found.get("limits") or {}) for found in each for name in ("cpu", "memory"))
    same = all(found.get("requests", found.get("limits")) == found.get("limits") for found in each)
    return "Guaranteed" if each and whole and same else "BestEffort"


def _is_ready(node: Mapping[str, Any]) -> bool:
    """Return whether a node is ready: kube-controller-manager removes the taint from it, which this server lacks."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


def defaulted(plural: str, body: Mapping[str, Any]) -> Item:
    """A new object with the defaults of its kind."""
    spec = body.get("spec") or {}
    if plural == "pods":
        if not spec.get("containers"):
            raise bad("spec.containers: Required value")
        spec = {"schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30} | spec
        return {**body, "spec": spec, "status": {"phase": "Pending", "qosClass": _qos(spec)}}
    if plural == "nodes" and not spec.get("taints") and not _is_ready(body):
        return {**body, "spec": spec | {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}}
    if plural == "poddisruptionbudgets":
        return {**body, "status": {"disruptionsAllowed": 0}}
    return dict(body)


def _fixed(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What nobody may change of a pod."""
    containers = [{**container, "image": ""} for container in spec.get("containers") or ()]
    return {**spec, "tolerations": None, "schedulingGates": None, "containers": containers}


def _gates(pod: Item) -> set[str]:
    return {gate["name"] for gate in pod["spec"].get("schedulingGates") or ()}


def _check_claim(old: Item, item: Item, subresource: str) -> None:
    """What is asked never changes, what was allocated only goes, and nothing is allocated without the finalizer."""
    if subresource != "status":
        if item.get("spec") != old.get("spec"):
            raise bad("spec: Invalid value: field is immutable")
        return
    was, now = (each.get("status") or {} for each in (old, item))
    before, after, users = was.get("allocation"), now.get("allocation"), now.get("reservedFor") or []
    if before and after and before != after:
        raise bad("status.allocation: Invalid value: field is immutable")
    if after and not before and "deletionTimestamp" in old["metadata"]:
        raise bad("status.allocation: Forbidden: a claim that is being deleted cannot be allocated")
    if users and not after:
        raise bad("status.reservedFor: Forbidden: may not be specified when `allocated` is not set")
    if len({user["uid"] for user in users}) != len(users) or not all(user.get("resource") for user in users):
        raise bad("status.reservedFor: Invalid value: resource, name and a uid of its own are required")


def _ready(pod: Item) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)


def _grace(pod: Item, options: Mapping[str, Any]) -> int:
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in _FINISHED:
        return 0
    given = options.get("gracePeriodSeconds")
    return int(pod["spec"]["terminationGracePeriodSeconds"] if given is None else given)


def _time(ahead_s: int = 0) -> str:
    return (datetime.now(UTC) + timedelta(seconds=ahead_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
