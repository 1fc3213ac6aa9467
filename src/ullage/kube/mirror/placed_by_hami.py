"""What a pod on a node holds by the annotations of HAMi's scheduler."""

from __future__ import annotations

from functools import partial

from ullage.kube.context import KubeContext
from ullage.kube.mirror.bound_requests import Held
from ullage.model.error import InvalidRequest
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.request import ResourceRequirement
from ullage.wire.document import Document
from ullage.wire.hami.placed import hami_allocations

_SLICES = ResourceRequirement(gpu_count=1, part=Part(), cards=CardSelector(isolation=Isolation.PARTITIONED))


class PlacedByHami:
    def __init__(self, context: KubeContext) -> None:
        self._cluster, self._read_pod = context.cluster, context.read_pod
        self._families = context.pod_settings.families

    def read(self, document: Document) -> Held | InvalidRequest:
        """Return what a pod on a node holds; an error if its record cannot be read, nothing without one."""
        try:
            asked = self._read_pod(document)
        except InvalidRequest:
            asked = None
        try:
            charge_on = self._cluster.charge_on
            slices_of = partial(charge_on, _SLICES)
            return hami_allocations(document, asked, charge_on, self._families, slices_of=slices_of)
        except InvalidRequest as error:
            return error
