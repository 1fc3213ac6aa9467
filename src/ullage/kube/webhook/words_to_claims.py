"""Turns a request in the words of a device plugin into ResourceClaims, where an operator names a DeviceClass for it.

The webhook changes the pod: each container with cards refers to a claim of its own, and an annotation keeps what the
claim asks for. It creates no object, since the pod may still be refused: `ullage.kube.claims.making` does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from ullage.model.error import invalid
from ullage.model.part import CardSelector, Isolation
from ullage.model.quantity import PPM
from ullage.wire.document import Document, mapping, mappings, section, text
from ullage.wire.dra.made_claim import ASKED_CLAIMS, AskedClaim, encode_asked
from ullage.wire.json_patch import JsonPatch
from ullage.wire.pod import Dialect, PodRequest
from ullage.wire.vendors.container_request import MIB, WHOLE, ContainerRequest, FamilyRequest
from ullage.wire.vendors.shipped import NVIDIA

_KINDS = ("initContainers", "containers")
_MOST_PREFIX = 40
_DIGITS = 10


@dataclass(frozen=True, slots=True)
class WordsToClaims:
    """Which requests become claims: those for cards of NVIDIA alone, in HAMi's words or in numbers of whole cards.

    `device_class` is also the name of its driver. `domain` is that of our annotations.
    """

    device_class: str
    domain: str

    def applies(self, asked: PodRequest) -> bool:
        """Return whether a request becomes claims."""
        of_plugin = asked.dialect in (Dialect.HAMI, Dialect.PLAIN) and asked.devices is not None
        return bool(self.device_class) and of_plugin and _family(asked) == NVIDIA.name and not asked.further

    def turn(self, patch: JsonPatch, pod: Document, asked: PodRequest, review: str) -> None:
        """Write the claims of a pod in place of its words. `review` makes their names unique.

        Raises:
            InvalidRequest: a claim cannot ask for that.

        """
        devices, cards = asked.devices, asked.requirement.cards
        if devices is None:
            return
        if cards.isolation not in (Isolation.SOFT, Isolation.SHARED):
            key = devices.family.annotations.mode
            raise invalid(key, cards.isolation.value, "cards of claims have no such mode; leave it out")
        prefix = text(section(pod, "metadata").get("name") or section(pod, "metadata").get("generateName"))
        made: dict[str, AskedClaim] = {}
        for kind, position, container, request in _containers(pod, devices):
            if not request.count:
                continue
            named = text(container.get("name"))
            digest = hashlib.sha256(f"{review}/{named}".encode()).hexdigest()[:_DIGITS]
            claim = f"{prefix[:_MOST_PREFIX].rstrip('-.') or 'pod'}-{digest}"
            made[claim] = _asked_claim(request, cards, f"spec.{kind}[{position}].resources")
            self._write(patch, (kind, position), devices, claim)
        patch.put("metadata", "annotations", f"{self.domain}/{ASKED_CLAIMS}", value=encode_asked(made))

    def _write(self, patch: JsonPatch, place: tuple[str, int], devices: FamilyRequest, claim: str) -> None:
        own = devices.family.resources
        for kind in ("limits", "requests"):
            for name in (own.count, *devices.family.amounts):
                patch.remove("spec", *place, "resources", kind, name)
        patch.append("spec", *place, "resources", "claims", value={"name": claim})
        patch.append("spec", "resourceClaims", value={"name": claim, "resourceClaimName": claim})


def _family(asked: PodRequest) -> str:
    return "" if asked.devices is None else asked.devices.family.name


def _containers(pod: Document, devices: FamilyRequest) -> Iterator[tuple[str, int, Document, ContainerRequest]]:
    """Yield each container with its place in the pod and its request."""
    spec, requests = section(pod, "spec"), iter(devices.containers)
    for kind in _KINDS:
        for position, (_, container) in enumerate(mappings(spec.get(kind), f"spec.{kind}")):
            yield kind, position, mapping(container, kind), next(requests)


def _asked_claim(request: ContainerRequest, cards: CardSelector, field: str) -> AskedClaim:
    if request.vram_ppm not in (0, PPM):
        percent = request.vram_ppm * WHOLE // PPM
        fix = "a claim asks for an amount of memory, not for a part of it; write nvidia.com/gpumem in MiB"
        raise invalid(f"{field}.limits.{NVIDIA.resources.percent}", percent, fix)
    return AskedClaim(
        count=request.count,
        memory_mib=request.vram_bytes // MIB,
        cores=request.cores_ppm * WHOLE // PPM,
        models=cards.model_words,
        not_models=cards.not_model_words,
        uuids=cards.uuids,
        not_uuids=cards.not_uuids,
    )
