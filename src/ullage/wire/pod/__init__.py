"""A Kubernetes pod as a request, and an allocation as annotations of its pod.

A pod is a plain mapping, as parsed from YAML or JSON. Its request for cards is in annotations under a configured
domain; `tensor-fusion.ai` reads pods written for that scheduler. Everything here is pure.

An error in an annotation is an `InvalidAnnotation` (code `invalid-annotation`) with the full key, its value and the
fix, and both keys where two contradict each other. An error elsewhere in the pod is an `InvalidRequest` that names the
path of the field.
"""

from ullage.model.part import WHOLE_CARD
from ullage.wire.document import Document
from ullage.wire.pod.admission import check_admission, check_scheduler
from ullage.wire.pod.bind import bind_annotations, effective_hard_sm_percent
from ullage.wire.pod.compose import compose_request
from ullage.wire.pod.document import parse_pod
from ullage.wire.pod.gang import gang_annotations
from ullage.wire.pod.keys import DOMAIN
from ullage.wire.pod.placement import decision_annotations, placement_annotations, read_placement
from ullage.wire.pod.reconcile import ReadPod, named_cards, read_allocations
from ullage.wire.pod.request import PLAIN_DEFAULTS, Dialect, PodDefaults, PodRequest
from ullage.wire.pod.split import split_container_gpus
from ullage.wire.vendors.shipped import LIMITER_VENDORS, NATIVE_RESOURCES, VENDORS

__all__ = [
    "DOMAIN",
    "LIMITER_VENDORS",
    "NATIVE_RESOURCES",
    "PLAIN_DEFAULTS",
    "VENDORS",
    "WHOLE_CARD",
    "Dialect",
    "Document",
    "PodDefaults",
    "PodRequest",
    "ReadPod",
    "bind_annotations",
    "check_admission",
    "check_scheduler",
    "compose_request",
    "decision_annotations",
    "effective_hard_sm_percent",
    "gang_annotations",
    "named_cards",
    "parse_pod",
    "placement_annotations",
    "read_allocations",
    "read_placement",
    "split_container_gpus",
]
