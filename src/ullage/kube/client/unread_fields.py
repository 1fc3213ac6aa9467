"""The fields of pods that nobody here reads: of a pod with an environment, volumes and probes most of its bytes."""

from __future__ import annotations

import msgspec

OF_SPEC = frozenset({"volumes"})

OF_CONTAINERS = frozenset(
    {
        *("args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle", "livenessProbe", "ports"),
        *("readinessProbe", "startupProbe", "stdin", "stdinOnce", "terminationMessagePath"),
        *("terminationMessagePolicy", "tty", "volumeDevices", "volumeMounts", "workingDir"),
    }
)

CONTAINERS = "containers", "initContainers"

_UNTIL_BOUND = frozenset({"volumes", "ports"})
"""Those that are read as long as a pod has no node: they may leave its place to kube-scheduler."""

_NO_NODE = b"", b'""'

_Fields = dict[str, msgspec.Raw]


def without_unread(pod: _Fields) -> _Fields:
    """Return the fields of a pod without those; a spec of another form stays as it is."""
    try:
        spec = msgspec.json.decode(pod["spec"], type=_Fields) if "spec" in pod else {}
        still_read = _UNTIL_BOUND if bytes(spec.get("nodeName", b"")) in _NO_NODE else frozenset[str]()
        spec, of_containers = _left(spec, OF_SPEC - still_read), OF_CONTAINERS - still_read
        for name in CONTAINERS:
            if name in spec:
                there = msgspec.json.decode(spec[name], type=list[_Fields])
                spec[name] = msgspec.Raw(msgspec.json.encode([_left(each, of_containers) for each in there]))
    except msgspec.ValidationError:
        return pod
    return {**pod, "spec": msgspec.Raw(msgspec.json.encode(spec))} if spec else pod


def _left(fields: _Fields, unread: frozenset[str]) -> _Fields:
    return {key: value for key, value in fields.items() if key not in unread}
