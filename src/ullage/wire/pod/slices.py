"""The request of a pod for slices that exist already: `nvidia.com/mig-1g.10gb: 1` in the limits of its containers.

The kubelet picks the slices, so the books hold as many of the same profile on the node. Several may lie on one card or
on several, with an equal number on each.
"""

from __future__ import annotations

from ullage.model.error import invalid
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.request import MAX_CARDS
from ullage.wire.document import Document
from ullage.wire.pod.cards import AMOUNTS, CardRequest, SlicesOnCards
from ullage.wire.pod.containers import containers_amount, containers_of, limited_resources
from ullage.wire.pod.keys import Keys
from ullage.wire.pod.request import PodDefaults
from ullage.wire.vendors.slice_resources import SliceResource, slice_resource

_OF_PARTS = (*AMOUNTS, "tflops-limit", "compute-percent-limit", "vram-limit", "gpu-indices", "gpu-count")
"""Annotations that contradict a slice: it has amounts of its own, and its kubelet picks it."""

_MOST = 7
"""The most slices of one card, of every model."""


def read_slice_request(keys: Keys, spec: Document, defaults: PodDefaults) -> CardRequest | None:
    """Return the request for slices in the limits of the containers; None if they limit none.

    Raises:
        InvalidRequest: an annotation asks for something else, or there are too many slices.

    """
    asked = _limited(spec)
    count = 0 if asked is None else containers_amount(spec, asked.name, 1, kinds=("limits",))
    if asked is None or not count:
        return None
    _check_annotations(keys, asked)
    ways = _ways(count)
    if not ways:
        raise invalid(asked.name, count, f"{MAX_CARDS} cards have no {count} slices, with an equal number on each")
    preferred, *_ = ways
    cards = CardSelector(
        models=keys.names("gpu-model"),
        vendors=(asked.vendor,),
        pool=keys.text("gpupool") or defaults.pool,
        isolation=Isolation.PARTITIONED,
        template=asked.profile,
        slices=preferred.slices,
    )
    return CardRequest(preferred.cards, Part(), cards, None, guaranteed=True, ways=ways)


def _limited(spec: Document) -> SliceResource | None:
    names = (name for _, path, container in containers_of(spec) for name in limited_resources(container, path))
    return next(filter(None, map(slice_resource, names)), None)


def _check_annotations(keys: Keys, asked: SliceResource) -> None:
    for name in _OF_PARTS:
        if keys.text(name) is not None:
            raise keys.invalid(name, f"the containers request {asked.name}, slices with amounts of their own; leave it")
    if keys.choice("isolation", Isolation) not in (None, Isolation.PARTITIONED) or keys.flag("dedicated-gpu"):
        name = "dedicated-gpu" if keys.flag("dedicated-gpu") else "isolation"
        raise keys.invalid(name, f"the containers request {asked.name}, which are partitioned; leave it out")
    if keys.text("partition-id") not in (None, asked.profile):
        raise keys.invalid("partition-id", f"the containers request {asked.name}; leave it out")
    named = {vendor.casefold() for vendor in keys.names("vendor")}
    if named and asked.maker.casefold() not in named:
        raise keys.invalid("vendor", f"the containers request {asked.name}; name {asked.maker}, or none")


def _ways(count: int) -> tuple[SlicesOnCards, ...]:
    """Return how so many slices may lie on cards with an equal number on each, the fewest cards first."""
    sizes = range(min(count, _MOST), 0, -1)
    ways = (SlicesOnCards(count // size, size) for size in sizes if count % size == 0)
    return tuple(way for way in ways if way.cards <= MAX_CARDS)
