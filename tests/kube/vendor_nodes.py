"""Nodes with cards of each vendor, as the agents of the vendors register them."""

from __future__ import annotations

import json
from typing import Any

Document = dict[str, Any]


def a_node(name: str, annotations: dict[str, str] | None = None, **amounts: str) -> Document:
    """A node with these annotations, and amounts of resources whose names are written with `__` for a slash."""
    reported = {"cpu": "64", "memory": "256Gi", "pods": "110"} | amounts
    status = {"allocatable": reported, "capacity": reported, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name, "annotations": annotations or {}}, "status": status}


def card(uuid: str, mib: int, cores: int = 100, **more: Any) -> Document:
    """A card in HAMi's register."""
    about = {"id": uuid, "index": 0, "count": 10, "devmem": mib, "devcore": cores, "type": "T1", "health": True}
    return about | more


def registered(key: str, *cards: Document) -> dict[str, str]:
    """The register of HAMi's agents, as JSON."""
    return {key: json.dumps(cards)}


def fields(key: str, *cards: Document) -> dict[str, str]:
    """The register of HAMi's agents in its older form."""
    names = ("id", "count", "devmem", "devcore", "type", "numa", "health", "index", "mode")
    plain = ({"numa": 0, "mode": ""} | each for each in cards)
    text = "".join(",".join(str(each[name]) for name in names).replace("True", "true") + ":" for each in plain)
    return {key: text}


def a_pod(name: str, *limits: dict[str, int | str], **more: Any) -> Document:
    """A pod whose containers have these limits."""
    amounts = [{key: str(value) for key, value in each.items()} for each in limits]
    containers = [
        {"name": f"c{at}", "image": "x", "resources": {"limits": each, "requests": each}}
        for at, each in enumerate(amounts)
    ]
    metadata = {"name": name, "namespace": "default", "annotations": more.pop("annotations", {})}
    spec = {"containers": containers, "schedulerName": "ullage"} | more
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
