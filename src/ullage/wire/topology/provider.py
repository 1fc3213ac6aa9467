"""Settings of alignment per resource, with the names that resources have in a cluster."""

from __future__ import annotations

from dataclasses import replace

from ullage.model.choice import parse_choice
from ullage.model.error import InvalidRequest, invalid
from ullage.model.provider import REST, Provider, ProviderKind, pages_of
from ullage.model.topology import CPU, HUGEPAGES, MEMORY
from ullage.wire.kubernetes_quantity import parse_quantity
from ullage.wire.vendors.shipped import NATIVE_RESOURCES


def read_provider(resource: str, kind: str | None, align: bool, path: str) -> Provider:
    """Return the provider for a name such as `nvidia.com/gpu`, `intel.com/*` or `hugepages-2Mi`.

    The kind follows from the name; `*` alone is all devices, or all of the given kind. Cards are `gpu`, or have the
    name that the device plugin of their vendor uses.
    """
    name = resource.removesuffix(REST)
    if REST in name or resource != resource.strip() or not resource or " " in resource:
        fix = "write a name such as nvidia.com/gpu, or the beginning of several and a *, such as intel.com/*"
        raise invalid(f"{path}.resource", resource, fix)
    usual = _kind_of(resource)
    given = usual if kind is None else parse_choice(ProviderKind, kind, f"{path}.kind")
    if given is not usual and resource != REST:
        raise invalid(f"{path}.kind", kind, f"{resource} is of kind {usual}; leave the kind out")
    if usual is ProviderKind.HUGEPAGES:
        return Provider(_pages(resource, f"{path}.resource"), usual, align)
    entry = Provider(resource, given, align)
    vendors = {vendor for native, vendor in NATIVE_RESOURCES.items() if entry.fits(ProviderKind.DEVICE, native)}
    return replace(entry, vendors=frozenset(vendors))


def _kind_of(resource: str) -> ProviderKind:
    if resource.startswith(HUGEPAGES):
        return ProviderKind.HUGEPAGES
    return {CPU: ProviderKind.CPU, MEMORY: ProviderKind.MEMORY}.get(resource, ProviderKind.DEVICE)


def _pages(resource: str, path: str) -> str:
    size = resource.removeprefix(HUGEPAGES)
    if size == REST:
        return pages_of(REST)
    try:
        return pages_of(parse_quantity(size, path))
    except InvalidRequest:
        raise invalid(path, resource, "write a size such as hugepages-2Mi, or hugepages-*") from None
