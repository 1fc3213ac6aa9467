"""What a pod says that is not read, or has no effect: the same at its creation, in a plan and in a simulation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ullage.model.error import invalid_annotation
from ullage.wire.dialect import PodSettings
from ullage.wire.document import Document, section
from ullage.wire.ineffective_keys import ineffective_annotations, ineffective_resources
from ullage.wire.pod.request import PodRequest
from ullage.wire.unknown_keys import UnknownKey, unknown_annotations, unknown_labels, unknown_resources


def unread_words(pod: Document, asked: PodRequest | None, settings: PodSettings) -> Iterator[str]:
    """Yield a sentence for each; `asked` is the request of the pod, None for no cards."""
    yield from map(
        str, unknown_annotations(section(pod, "metadata", "annotations"), settings.domain, settings.families)
    )
    yield from map(str, unknown_labels(section(pod, "metadata", "labels"), settings.domain, settings.families))
    yield from unread_resources(pod, asked, settings)


def unread_resources(pod: Document, asked: PodRequest | None, settings: PodSettings) -> Iterator[str]:
    """Yield a sentence for each resource and known annotation of a pod of ours that has no effect."""
    split = () if asked is None else asked.container_gpu_counts
    yield from unknown_resources(pod, settings.families)
    yield from ineffective_resources(pod, settings.families, split)
    yield from ineffective_annotations(pod, asked, settings)


def check_misspelt(pod: Document, settings: PodSettings, unknown: Iterable[UnknownKey] | None = None) -> None:
    """Refuse a key that would be a request if spelt correctly: the pod would run with another request, or none.

    `unknown` are the unknown annotations of the pod, where they were searched before.

    Raises:
        InvalidAnnotation: a key resembles one of ours.

    """
    own, annotations = f"{settings.domain}/", section(pod, "metadata", "annotations")
    if unknown is None:
        unknown = unknown_annotations(annotations, settings.domain, settings.families)
    for each in unknown:
        if each.similar != each.key and each.key.startswith(own) and each.similar.startswith(own):
            fix = f"it is not read; did you mean {each.similar}?"
            raise invalid_annotation(each.key, annotations[each.key], fix)
