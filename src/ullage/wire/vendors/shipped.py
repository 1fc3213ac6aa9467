"""The vendors of the package, and the names of their resources in Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from ullage.model.topology import CARD
from ullage.wire.vendors.family import Family
from ullage.wire.vendors.load import families_of, shipped


class SlicePrefix(NamedTuple):
    """How the resources of slices begin, the vendor of sliced cards in the books, and the vendor that offers them."""

    prefix: str
    vendor: str
    maker: str


FAMILIES = families_of(shipped())
"""The families of all vendors."""

NVIDIA = next(family for family in FAMILIES if family.name == "NVIDIA")

NAMES: Mapping[str, tuple[str, ...]] = {
    **{family.name: (family.name,) for family in FAMILIES},
    **{
        each.vendor: tuple(dict.fromkeys((each.vendor, *(family.name for family in each.family)))) for each in shipped()
    },
}
"""The vendors of cards in the books, by each name that a pod may write for them, in any case."""

VENDORS = tuple(sorted(NAMES, key=str.casefold))
"""Vendors and families that a pod may name, in any case."""

_SPELLINGS = {name.casefold(): name for name in VENDORS}


def vendor_name(text: str) -> str:
    """Return the name of a vendor or family that is written in any case; another text stays as it is."""
    return _SPELLINGS.get(text.casefold(), text)


LIMITER_VENDORS = frozenset(name for each in shipped() if each.limiter for name in NAMES[each.vendor])
"""Vendors with a limiter, which isolates parts softly."""

NATIVE_RESOURCES: Mapping[str, str] = {
    **{resource: each.vendor for each in shipped() for resource in each.plain},
    **{family.resources.count: family.name for family in FAMILIES if family.count.means == "cards"},
}
"""Resources that count whole cards at a kubelet, with the vendor of the cards in the books."""

SLICES = tuple(SlicePrefix(each.slices.prefix, each.slices.vendor, each.vendor) for each in shipped() if each.slices)
"""The resources of slices that exist already; `ullage.wire.vendors.slice_resources` reads them."""

SLICED = frozenset(each.vendor for each in SLICES)
"""The vendors of cards in the books on which slices lie that exist already."""


def as_resource(name: str) -> str:
    """Return our name of a Kubernetes resource: the cards of every vendor have the same name."""
    return CARD if name in NATIVE_RESOURCES else name


@cache
def by_resource(families: tuple[Family, ...]) -> Mapping[str, Family]:
    """Return each resource of the families with its family."""
    return {name: family for family in families for name in (family.resources.count, *family.amounts)}
