"""What could help against a rejection, in a few words for the owner of the request."""

from __future__ import annotations

from ullage.model.rejection import Code, Cure, Rejection

_BY_CODE = {
    Code.WRONG_MODEL: "ask for a model that is there",
    Code.WRONG_VENDOR: "ask for a vendor that is there",
    Code.WRONG_POOL: "name a pool that is there, or add nodes to it",
    Code.WRONG_INDEX: "ask for an index that is there",
    Code.WRONG_UUID: "ask for a card that is there",
    Code.ISOLATION_UNSUPPORTED: "ask for another isolation, or add cards that have it",
    Code.NO_PARTITION_TEMPLATE: "ask for a slice that a model has",
    Code.NO_PARTITION_SLOT: "wait until a slice ends, or ask for one that has a free place",
    Code.NO_CANDIDATE: "add nodes with such cards",
    Code.NODE_AFFINITY: "allow nodes that are there",
    Code.NODE_TAINTED: "tolerate the taint, or remove it from the node",
    Code.NODE_UNKNOWN: "wait until the node reports its cards",
    Code.NOT_READY: "wait until the node is ready",
    Code.CORDONED: "uncordon the node, or add nodes",
    Code.GPU_CORDONED: "uncordon the card, or add cards",
    Code.GPU_NOT_RUNNING: "repair the card, or add cards",
    Code.GPU_MISSING: "repair the card, or add cards",
    Code.CAPACITY_UNKNOWN: "",
    Code.ABOVE_LIMIT: "ask for less, or have the limit raised: waiting does not help",
    Code.QUEUE_LIMIT: "wait until others of the queue end, or have its limit raised",
    Code.GANG_INCOMPLETE: "create the missing members",
}
_BY_CURE = {
    Cure.CAPACITY: "wait until others end",
    Cure.NODE_CHANGE: "ask for less or for other cards, or add nodes: waiting does not help",
    Cure.QUOTA: "ask for less, or have the quota of the namespace raised",
    Cure.OWNER: "change the request",
    Cure.NEVER: "ask for less, or have the quota of the namespace raised: waiting does not help",
}


def cure_text(rejection: Rejection) -> str:
    """Return the nearest cure of a rejection as an instruction; "" if its sentence has that already."""
    return _BY_CODE.get(rejection.code, _BY_CURE[rejection.cure])
