"""The gang of a pod: members as admission stamped them, else as the pod and its workload state."""

from __future__ import annotations

from ullage.model.claim import GangClaim, Subgroup, check_levels
from ullage.model.counted import counted
from ullage.wire.pod.duration import parse_duration
from ullage.wire.pod.keys import Keys, as_annotation
from ullage.wire.pod.request import PodRequest

_LEAST = 2


def gang_of(keys: Keys, namespace: str, workload: str, replicas: int | None) -> GangClaim | None:
    """Return the gang of a pod; `replicas` is the size of its workload, where that is known."""
    enabled = keys.text("gang-enabled")
    if enabled is not None and not keys.flag("gang-enabled"):
        return None
    least = _least(keys)
    if enabled is None and not least:
        return None
    stated = "gang-min-members" if enabled is None else "gang-enabled"
    desired = keys.count("gang-desired-members")
    desired = desired if desired is not None else replicas if replicas is not None else least
    required = keys.count("gang-required-members") or least or desired
    if not desired and replicas is None:
        raise keys.conflict("gang-enabled", "gang-min-members", "the size of the gang is not known; state its minimum")
    if required > desired:
        name = "gang-required-members" if keys.text("gang-required-members") else "gang-min-members"
        has = f"the workload has {counted(desired, 'member')} ({keys.key('gang-desired-members')})"
        raise keys.invalid(name, f"{has}; request at most as many")
    if desired < _LEAST:
        return None
    group = keys.text("gang-group-key") or (f"{namespace}/{workload}" if workload else None)
    if group is None:
        raise keys.conflict(stated, "workload", "name the workload in that label")
    domain, within = _levels(keys, "gang-")
    subgroups = _subgroups(keys)
    return GangClaim(
        group,
        required,
        desired,
        _timeout(keys),
        domain=domain,
        within=within,
        subgroups=subgroups,
        required_subgroups=0 if subgroups else None,
    )


def _subgroups(keys: Keys) -> tuple[Subgroup, ...]:
    """Return the subgroup of a pod. It starts as a whole; how many start together follows from the gang's size."""
    name = keys.text("gang-subgroup")
    if name is None:
        for other in ("gang-subgroup-members", "gang-subgroup-domain", "gang-subgroup-within"):
            if keys.text(other) is not None:
                raise keys.conflict(other, "gang-subgroup", "name the subgroup there")
        return ()
    least = keys.count("gang-subgroup-members") or 0
    domain, within = _levels(keys, "gang-subgroup-")
    return (Subgroup(name, least, domain=domain, within=within),)


def gang_annotations(request: PodRequest) -> dict[str, str]:
    """Return the annotations that admission stamps on a member of a gang, to fix its size; none for other pods."""
    gang = request.claim.gang
    if gang is None:
        return {}
    stamps = {"desired-members": gang.desired, "required-members": gang.required, "group-key": gang.key}
    return {request.key(f"gang-{name}"): str(value) for name, value in stamps.items()}


def _levels(keys: Keys, of: str) -> tuple[str | None, str | None]:
    """Return the preferred levels, and the required one."""
    domain, within = keys.text(f"{of}domain") or None, keys.text(f"{of}within") or None
    with as_annotation():
        check_levels(keys.key(f"{of}within").removesuffix("within"), domain, within)
    return domain, within


def _least(keys: Keys) -> int:
    least = keys.count("gang-min-members") or 0
    if least == 1:
        raise keys.invalid("gang-min-members", f"write {_LEAST} or more, or 0 for all members")
    return least


def _timeout(keys: Keys) -> float | None:
    """Return the seconds of the timeout; None for no end."""
    text = keys.text("gang-timeout")
    seconds = 0.0 if text is None else parse_duration(text)
    if seconds is None:
        raise keys.invalid("gang-timeout", "write a duration such as 90s, 5m or 1h30m, or 0 for none")
    return seconds or None
