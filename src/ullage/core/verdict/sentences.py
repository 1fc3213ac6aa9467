"""The words for reasons: codes and numbers become text here and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence

from ullage.core.verdict.mismatch import mismatch_text
from ullage.model.quantity import PPM, format_decimal, say_bytes
from ullage.model.quota import WHOLE_PERCENT, QuotaAlarm, QuotaCondition
from ullage.model.rejection import Code, Cure, QuotaFigures, Rejection
from ullage.model.resources import show_milli
from ullage.model.topology import CARD, CPU, HUGEPAGES, MEMORY

CURES: dict[Code, Cure] = {
    Code.CPU: Cure.CAPACITY,
    Code.MEMORY: Cure.CAPACITY,
    Code.GPU: Cure.CAPACITY,
    Code.SLOTS: Cure.CAPACITY,
    Code.NOT_READY: Cure.NODE_CHANGE,
    Code.CORDONED: Cure.NODE_CHANGE,
    Code.RESERVED: Cure.CAPACITY,
    Code.TOO_LARGE: Cure.NODE_CHANGE,
    Code.ABOVE_LIMIT: Cure.QUOTA,
    Code.QUEUE_LIMIT: Cure.QUOTA,
    Code.APPLICATION_LIMIT: Cure.QUOTA,
    Code.SHARE: Cure.CAPACITY,
    Code.GANG_INCOMPLETE: Cure.OWNER,
    Code.GANG_ROOM: Cure.CAPACITY,
    Code.GANG_DOMAIN: Cure.CAPACITY,
    Code.BIND_FAILURES: Cure.OWNER,
    Code.BACKOFF: Cure.CAPACITY,
    Code.DEPENDENCY: Cure.OWNER,
    Code.BEGIN_TIME: Cure.OWNER,
    Code.RECLAIMING: Cure.CAPACITY,
    Code.NO_NODES: Cure.NODE_CHANGE,
    Code.MAX_INSTANCES: Cure.OWNER,
    Code.WRONG_POOL: Cure.NODE_CHANGE,
    Code.GPU_NOT_RUNNING: Cure.NODE_CHANGE,
    Code.USED_BY_OTHER: Cure.NODE_CHANGE,
    Code.GPU_MISSING: Cure.NODE_CHANGE,
    Code.GPU_CORDONED: Cure.NODE_CHANGE,
    Code.CAPACITY_UNKNOWN: Cure.NODE_CHANGE,
    Code.NO_CAPACITY: Cure.NODE_CHANGE,
    Code.ISOLATION_POLICY: Cure.NODE_CHANGE,
    Code.ISOLATION_UNSUPPORTED: Cure.NODE_CHANGE,
    Code.WRONG_INDEX: Cure.NODE_CHANGE,
    Code.WRONG_UUID: Cure.NODE_CHANGE,
    Code.WRONG_MODEL: Cure.NODE_CHANGE,
    Code.WRONG_VENDOR: Cure.NODE_CHANGE,
    Code.NODE_AFFINITY: Cure.NODE_CHANGE,
    Code.NODE_TAINTED: Cure.NODE_CHANGE,
    Code.NODE_UNKNOWN: Cure.NODE_CHANGE,
    Code.REFUSED_THERE: Cure.NODE_CHANGE,
    Code.POD_ANTI_AFFINITY: Cure.NODE_CHANGE,
    Code.NO_PARTITION_TEMPLATE: Cure.NODE_CHANGE,
    Code.NO_CANDIDATE: Cure.NODE_CHANGE,
    Code.ISOLATION_LOCKED: Cure.CAPACITY,
    Code.ISOLATION_CONFLICT: Cure.CAPACITY,
    Code.GPU_NOT_IDLE: Cure.CAPACITY,
    Code.GPU_USERS: Cure.CAPACITY,
    Code.GPU_COMPUTE: Cure.CAPACITY,
    Code.GPU_VRAM: Cure.CAPACITY,
    Code.GPU_SHARE: Cure.CAPACITY,
    Code.PARTITION_COUNT: Cure.CAPACITY,
    Code.TEMPLATE_MAX: Cure.CAPACITY,
    Code.EXTENDED_RESOURCE: Cure.CAPACITY,
    Code.NO_PARTITION_SLOT: Cure.CAPACITY,
    Code.NO_ISOLATION_GROUP: Cure.CAPACITY,
    Code.OVERSUBSCRIPTION: Cure.CAPACITY,
    Code.NOMINATED: Cure.CAPACITY,
    Code.WORKER_CAP: Cure.CAPACITY,
    Code.NOT_ENOUGH_CARDS: Cure.CAPACITY,
    Code.NO_NODE_FITS: Cure.CAPACITY,
    Code.SCALING_EXCEEDED: Cure.CAPACITY,
    Code.NO_VICTIMS: Cure.CAPACITY,
    Code.EVICTING: Cure.CAPACITY,
    Code.NO_MOVES_HELP: Cure.CAPACITY,
    Code.NO_AFFECTED_NODE: Cure.OWNER,
    Code.TOPOLOGY_UNKNOWN: Cure.NODE_CHANGE,
    Code.NODE_POLICY_WEAKER: Cure.NODE_CHANGE,
    Code.ZONES_TOO_MANY: Cure.NODE_CHANGE,
    Code.NOT_ALIGNED: Cure.CAPACITY,
    Code.SHORT_ALLOCATION: Cure.CAPACITY,
    Code.BROKEN_CORES: Cure.CAPACITY,
    Code.NOT_LINKED: Cure.CAPACITY,
    Code.OFF_SWITCH: Cure.CAPACITY,
    Code.QUOTA_SINGLE_COMPUTE_REQUEST: Cure.NEVER,
    Code.QUOTA_SINGLE_VRAM_REQUEST: Cure.NEVER,
    Code.QUOTA_SINGLE_COMPUTE_LIMIT: Cure.NEVER,
    Code.QUOTA_SINGLE_VRAM_LIMIT: Cure.NEVER,
    Code.QUOTA_SINGLE_GPU_COUNT: Cure.NEVER,
    Code.QUOTA_TOTAL_COMPUTE_REQUEST: Cure.QUOTA,
    Code.QUOTA_TOTAL_VRAM_REQUEST: Cure.QUOTA,
    Code.QUOTA_TOTAL_COMPUTE_LIMIT: Cure.QUOTA,
    Code.QUOTA_TOTAL_VRAM_LIMIT: Cure.QUOTA,
    Code.QUOTA_TOTAL_WORKERS: Cure.QUOTA,
    Code.QUOTA_TOTAL_CORES: Cure.QUOTA,
}
"""What kind of change helps; a code that is not here is no obstacle.

A rejection of one card or node has its own: freed capacity does not help against what is too small when empty.
"""

MEANINGS: dict[Code, str] = {
    Code.CPU: "no node has enough free cpu",
    Code.MEMORY: "no node has enough free memory",
    Code.GPU: "no node has enough free GPUs",
    Code.SLOTS: "every node has as many executors as it may have",
    Code.NOT_READY: "the node is not ready",
    Code.CORDONED: "the node is cordoned: an operator keeps new work off it",
    Code.RESERVED: "what is free is held for another session that waits longer or deserves it more",
    Code.TOO_LARGE: "the request is larger than any node",
    Code.ABOVE_LIMIT: "it is larger than a limit ever allows",
    Code.QUEUE_LIMIT: "the queue, or one above it, is at its limit",
    Code.APPLICATION_LIMIT: "the application has as many executors as its max_instances allows",
    Code.SHARE: "the session holds its fair share; the rest belongs to others",
    Code.GANG_INCOMPLETE: "a gang starts together and some of its members are not there yet",
    Code.GANG_ROOM: "the nodes have no room for all of the gang, and a gang starts together or not at all",
    Code.GANG_DOMAIN: "members of the gang have to stay within one domain, and none has room for all of them",
    Code.BIND_FAILURES: "its executors fail to start; after five failures mend the cause, then `ullage retry` it",
    Code.BACKOFF: "its gang did not come together in time; it is tried again in a moment",
    Code.DEPENDENCY: "it is to run after other sessions, which have not come that far",
    Code.BEGIN_TIME: "its begin time has not come",
    Code.RECLAIMING: "room is being made: others above their share finish their running task first",
    Code.STARTING: "its executors are starting",
    Code.NO_NODES: "no node that could hold it takes new work: there is none, or each is not ready or cordoned",
    Code.MAX_INSTANCES: "it has as many executors as its max_instances allows",
    Code.CLOSED: "the session is closed",
    Code.NOTHING_PENDING: "it has no tasks",
    Code.RUNNING: "it has all it asks for",
    Code.WRONG_POOL: "the card is of another pool",
    Code.GPU_NOT_RUNNING: "the card is not running",
    Code.USED_BY_OTHER: "another device plugin has the card",
    Code.GPU_MISSING: "the card is not healthy, or was not seen any more",
    Code.GPU_CORDONED: "the card is cordoned: an operator keeps new work off it",
    Code.CAPACITY_UNKNOWN: "the capacity of the card is not known; declare it "
    "(card_model in a cluster, else node.card), or ask for a fraction: "
    "gpu=0.5, or nvidia.com/gpumem-percentage in a pod",
    Code.NO_CAPACITY: "the card is reported with no compute, no vram, or room for no users",
    Code.ISOLATION_POLICY: "the card keeps its users apart in another way, or is given in partitions only",
    Code.ISOLATION_LOCKED: "the present users of the card are kept apart in another way",
    Code.ISOLATION_CONFLICT: "the card has users that are kept apart in different ways; it must become empty first",
    Code.ISOLATION_UNSUPPORTED: "the card cannot keep its users apart in this way",
    Code.WRONG_INDEX: "another card is named",
    Code.WRONG_UUID: "other cards are named by their uuids, or this one is excluded",
    Code.WRONG_MODEL: "the card is of another model",
    Code.WRONG_VENDOR: "the card is of another vendor",
    Code.NODE_AFFINITY: "the node does not meet the request's terms",
    Code.NODE_TAINTED: "the node has a taint that the request does not tolerate",
    Code.NODE_UNKNOWN: "the card's node is not known",
    Code.REFUSED_THERE: "the kubelet of the node refused one that asks the same, and nothing has changed there since",
    Code.POD_ANTI_AFFINITY: "the nodes with room have pods whose anti-affinity keeps it away",
    Code.NO_PARTITION_TEMPLATE: "no partition of the card's model covers the request",
    Code.GPU_NOT_IDLE: "the card is in use and is asked for whole",
    Code.GPU_USERS: "the card has as many users as it may have",
    Code.GPU_COMPUTE: "no card has enough compute free",
    Code.GPU_VRAM: "no card has enough vram free",
    Code.PARTITION_COUNT: "the card has as many partitions as it may have",
    Code.TEMPLATE_MAX: "the card has as many partitions of this template as it may have",
    Code.EXTENDED_RESOURCE: "a resource that the partition needs is used up on the card",
    Code.NO_PARTITION_SLOT: "no place on the card is free for the partition",
    Code.NO_ISOLATION_GROUP: "no isolation group of the card has room for the partition",
    Code.GPU_SHARE: "no card has that much of itself free",
    Code.OVERSUBSCRIPTION: "the limits on the node would be above what may be promised of it",
    Code.NOMINATED: "the room is held for a request or a session that comes first",
    Code.WORKER_CAP: "the node has as many workers as it may have",
    Code.NOT_ENOUGH_CARDS: "the node has too few suitable cards",
    Code.NO_NODE_FITS: "no node has as many suitable cards as requested",
    Code.NO_CANDIDATE: "no card is suitable",
    Code.SCALING_EXCEEDED: "a card of the allocation does not have that much more",
    Code.NO_AFFECTED_NODE: "neither victims nor nodes are named, so there is nothing to look at",
    Code.NO_VICTIMS: "nobody on the node may be evicted for it",
    Code.NO_MOVES_HELP: "more does not fit by moving those who may be moved",
    Code.EVICTING: "those who give way to it are leaving; it starts when they are gone",
    Code.TOPOLOGY_UNKNOWN: "the zones of the node are not known, and the request must be aligned",
    Code.NODE_POLICY_WEAKER: "the kubelet of the node is less strict than the request asks",
    Code.ZONES_TOO_MANY: "the node has more zones than are supported, and the request must be aligned",
    Code.NOT_ALIGNED: "what it needs does not lie in the same zones",
    Code.SHORT_ALLOCATION: "the node has too few free devices or CPUs of its own to hand out",
    Code.BROKEN_CORES: "the kubelet of the node hands out whole cores only, and its CPUs would not be",
    Code.NOT_LINKED: "its cards would not be joined by fast links, or nothing is known of their links",
    Code.OFF_SWITCH: "its cards would not be behind one PCIe switch with a device that it pairs them with",
    Code.QUOTA_SINGLE_COMPUTE_REQUEST: "it requests more compute of a card than the quota allows one request",
    Code.QUOTA_SINGLE_VRAM_REQUEST: "it requests more vram of a card than the quota allows one request",
    Code.QUOTA_SINGLE_COMPUTE_LIMIT: "its compute limit on a card exceeds what the quota allows one request",
    Code.QUOTA_SINGLE_VRAM_LIMIT: "its vram limit on a card exceeds what the quota allows one request",
    Code.QUOTA_SINGLE_GPU_COUNT: "it requests more cards than the quota allows one request",
    Code.QUOTA_TOTAL_COMPUTE_REQUEST: "the compute that its namespace requests would exceed the quota",
    Code.QUOTA_TOTAL_VRAM_REQUEST: "the vram that its namespace requests would exceed the quota",
    Code.QUOTA_TOTAL_COMPUTE_LIMIT: "the compute limits of its namespace would exceed the quota",
    Code.QUOTA_TOTAL_VRAM_LIMIT: "the vram limits of its namespace would exceed the quota",
    Code.QUOTA_TOTAL_WORKERS: "its namespace has as many workers as its quota allows",
    Code.QUOTA_TOTAL_CORES: "the compute of all cards of its namespace, in percent of a card, would exceed the quota",
}
"""One sentence per code, also the reference table."""

AMOUNTS = {
    Code.CPU: "cpu",
    Code.MEMORY: "memory",
    Code.GPU: "GPUs",
    Code.SLOTS: "executors",
    Code.GPU_COMPUTE: "compute",
    Code.GPU_VRAM: "vram",
    Code.GPU_SHARE: "of a card",
}
"""Amounts that nodes and cards run out of, as sentences name them."""

_BYTES = frozenset(
    {
        Code.MEMORY,
        Code.GPU_VRAM,
        Code.QUOTA_SINGLE_VRAM_REQUEST,
        Code.QUOTA_SINGLE_VRAM_LIMIT,
        Code.QUOTA_TOTAL_VRAM_REQUEST,
        Code.QUOTA_TOTAL_VRAM_LIMIT,
    }
)
_GFLOPS = frozenset(
    {
        Code.GPU_COMPUTE,
        Code.QUOTA_SINGLE_COMPUTE_REQUEST,
        Code.QUOTA_SINGLE_COMPUTE_LIMIT,
        Code.QUOTA_TOTAL_COMPUTE_REQUEST,
        Code.QUOTA_TOTAL_COMPUTE_LIMIT,
    }
)
_OF_GANGS = frozenset({Code.GANG_INCOMPLETE, Code.GANG_ROOM, Code.GANG_DOMAIN})
_SINGULAR = {"GPUs": "GPU", "executors": "executor", "cards": "card", "CPUs": "CPU"}
_PIECES = {CARD: "cards", CPU: "CPUs", MEMORY: "of memory"}

_OF_NODES = frozenset({Code.CPU, Code.MEMORY, Code.SLOTS})
"""Amounts that a node has, and not its cards."""


def first_text(rejections: Sequence[Rejection]) -> str:
    """Return the first answer; where cards or nodes are named, with what there is instead on all of them."""
    first, *_ = rejections
    return f"{MEANINGS[first.code]}: {mismatch_text(rejections)}" if first.wanted else reject_text(first)


def reject_text(rejection: Rejection) -> str:
    """Return one node's answer."""
    if rejection.code in AMOUNTS and rejection.needed and not (rejection.quota or rejection.mode):
        return _amounts_text(rejection)
    detail = (_gang_numbers if rejection.code in _OF_GANGS else _detail)(rejection)  # "": it was not said how much
    return f"{MEANINGS[rejection.code]}: {detail}" if detail else MEANINGS[rejection.code]


def _detail(rejection: Rejection) -> str:
    """Return what stands behind the meaning of a code, where it has more numbers or names than an amount."""
    if rejection.wanted:
        return mismatch_text([rejection])
    if rejection.quota is not None:
        return _quota_numbers(rejection.code, rejection.quota)
    if rejection.zones or rejection.code is Code.BROKEN_CORES:
        return zone_numbers(rejection)
    if rejection.mode is not None:
        return rejection.mode.value
    if rejection.resource and rejection.code is not Code.OFF_SWITCH:
        return f"it needs {rejection.needed} of {rejection.resource}, {rejection.gpu} has {rejection.had} left"
    return _count_numbers(rejection) if rejection.needed else ""


def _link_numbers(rejection: Rejection) -> str:
    """Return how many linked cards a node has; if these suffice, its plugin might still take others."""
    there = f"behind a switch with {rejection.resource}" if rejection.resource else "of one island"
    itself = ", and its device plugin chooses by itself" if rejection.had >= rejection.needed else ""
    return f"it needs {rejection.needed} cards {there}, {rejection.node} has {rejection.had}{itself}"


def _count_numbers(rejection: Rejection) -> str:
    """Return how many cards of a node there are of those that are needed."""
    if rejection.code is Code.NOT_ENOUGH_CARDS:
        return f"it needs {rejection.needed}, {rejection.node} has {rejection.had}"
    if rejection.code in (Code.NOT_LINKED, Code.OFF_SWITCH):
        return _link_numbers(rejection)
    return ""


def _gang_numbers(rejection: Rejection) -> str:
    """Return how many members of a gang, or of a subgroup of it, are there or would fit."""
    if not rejection.needed:
        return ""
    subgroup, counts = rejection.subgroup, f"{rejection.had} of {rejection.needed}"
    if rejection.code is Code.GANG_INCOMPLETE:
        whole = f"subgroup {subgroup}" if subgroup else "the gang"
        return f"{whole} has {counts} {rejection.resource}" if rejection.resource else ""
    empty = " on empty nodes" if rejection.cure is Cure.NODE_CHANGE else ""
    domain = f" in one {rejection.resource}" if rejection.resource else ""
    return f"{counts}{f' of subgroup {subgroup}' if subgroup else ''} would fit{domain}{empty}"


def _amounts_text(rejection: Rejection) -> str:
    """Return what is needed and what there is; what the request holds itself is counted apart from what is free."""
    own = rejection.own if rejection.cure is not Cure.NODE_CHANGE else 0
    needed, had, held = (show_amount(rejection.code, n) for n in (rejection.needed, rejection.had - own, own))
    verb = "has" if rejection.cure is Cure.NODE_CHANGE else "has free"
    besides = f" besides the {held} it holds" if own else ""
    named = rejection.node if rejection.gpu and rejection.code in _OF_NODES else rejection.gpu
    who = f"{named} " if named else ""
    return f"needs {amount_text(rejection.code, needed)}, {who}{verb} {had}{besides}"


def amount_text(code: Code, shown: str) -> str:
    """Return an amount with its noun: `2 GPUs`, `1 GPU`."""
    return f"{shown} {_noun(shown, AMOUNTS[code])}"


def zone_numbers(rejection: Rejection) -> str:
    """Return what each zone has: `it needs 4 cards; node a has 3 of 4 free on zone 0, 1 of 4 on zone 1`.

    Then, of what its cards have to be near to, how many there are: `; nic: 0 on zone 0, 1 on zone 1`.
    """
    if rejection.code is Code.BROKEN_CORES:
        return _core_numbers(rejection)
    who = "it" if rejection.container is None else f"its container {rejection.container}"
    asked = " and ".join(_piece(need.resource, need.amount) for need in rejection.needs)
    together = " in the same zones" if len(rejection.needs) > 1 else ""
    rule = f" (width rule {rejection.rule})" if rejection.rule else ""
    named = [need.resource for need in rejection.needs]
    near = ""
    for name in dict.fromkeys(zone.resource for zone in rejection.zones if zone.resource not in named):
        there = (f"{zone.total} on zone {zone.zone}" for zone in rejection.zones if zone.resource == name)
        near += f"; {name}: {', '.join(there)}"
    return f"{who} needs {asked}{together}; {_node(rejection)} has {_zones_have(rejection, named)}{rule}{near}"


def _node(rejection: Rejection) -> str:
    return f"{rejection.node}, when empty," if rejection.when_empty else str(rejection.node)


def _zones_have(rejection: Rejection, named: Sequence[str]) -> str:
    """`3 of 4 free on zone 0, 1 of 4 on zone 1`; of several resources with their names."""
    rooms: dict[int, list[str]] = {}
    for room in rejection.zones:
        if room.resource in named:
            amount = f"{_amount(room.resource, room.free)} of {_amount(room.resource, room.total)}"
            piece = f" {_PIECES.get(room.resource, room.resource)}" if len(named) > 1 else ""
            rooms.setdefault(room.zone, []).append(f"{amount}{piece}")
    if not rooms:
        return f"none of {' and '.join(_PIECES.get(name, name) for name in named)}"
    first, *others = ((" and ".join(amounts), zone) for zone, amounts in rooms.items())
    return ", ".join([f"{first[0]} free on zone {first[1]}", *(f"{had} on zone {zone}" for had, zone in others)])


def _piece(resource: str, amount: int) -> str:
    shown = _amount(resource, amount)
    return f"{shown} {_noun(shown, _PIECES.get(resource, resource))}"


def _noun(amount: str, several: str) -> str:
    """Return the noun of an amount: `GPUs`, and `GPU` of one."""
    return _SINGULAR.get(several, several) if amount == "1" else several


def _amount(resource: str, amount: int) -> str:
    return say_bytes(amount) if resource == MEMORY or resource.startswith(HUGEPAGES) else str(amount)


def _core_numbers(rejection: Rejection) -> str:
    """Return how many CPUs it needs: no whole number of cores, or more than there are on such."""
    if rejection.had >= rejection.needed:
        return f"it needs {rejection.needed} CPUs, which is no whole number of cores on {rejection.node}"
    return (
        f"it needs {rejection.needed} CPUs; {_node(rejection)} has {rejection.had} free on cores that are not reserved"
    )


def _quota_numbers(code: Code, figures: QuotaFigures) -> str:
    asked, cap, used = (show_amount(code, n) for n in (figures.requested, figures.limit, figures.used))
    of = f"{used} of {cap} used" if CURES[code] is Cure.QUOTA else f"at most {cap}"
    numbers = f"it asks {asked}, {of} (namespace {figures.namespace})"
    return f"{numbers}; {figures.fault}" if figures.fault else numbers


def condition_text(condition: QuotaCondition) -> str:
    """Return a quota's condition in one sentence; each resource is next to its own number."""
    left = WHOLE_PERCENT - condition.threshold_percent
    if condition.ready:
        return f"at least {left} % is left of everything the quota counts"
    alerts = ", ".join(f"{percent or '?'} % of {resource}" for resource, percent in condition.alerts)
    return f"less than {left} % is left: {alerts}"


def alarm_text(alarm: QuotaAlarm) -> str:
    """Return what a usage below zero means to the operator of the books."""
    taken, had = (_show_resource(alarm.resource, amount) for amount in (alarm.taken, alarm.had))
    return (
        f"{alarm.resource} of namespace {alarm.namespace} would fall below zero: "
        f"{taken} given back, {had} held; counted as 0"
    )


def _show_resource(resource: str, amount: int) -> str:
    """Return an amount of one of `RESOURCES` in the unit of its name."""
    if resource.endswith(".tflops"):
        return show_milli(amount)
    if resource == "cores":
        return _show_cores(amount)
    return say_bytes(amount) if resource.endswith(".vram") else str(amount)


def _show_cores(ppm: int) -> str:
    """Millionths of cards, in percent of one."""
    return f"{ppm * WHOLE_PERCENT / PPM:g} %"


def show_amount(code: Code, amount: int) -> str:
    """Return an amount of a rejection in the unit people read."""
    if code in _BYTES:
        return say_bytes(amount)
    if code is Code.GPU_SHARE:
        return format_decimal(amount)
    if code in _GFLOPS:
        return f"{show_milli(amount)} TFLOPS"
    if code is Code.QUOTA_TOTAL_CORES:
        return _show_cores(amount)
    return show_milli(amount) if code is Code.CPU else str(amount)
