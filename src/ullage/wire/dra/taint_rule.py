"""DeviceTaintRules of the Kubernetes API."""

from __future__ import annotations

from ullage.model.error import invalid
from ullage.model.slice_device import TaintRule
from ullage.model.taint import Taint
from ullage.wire.document import Document, mapping, section, text

_KNOWN = ("driver", "pool", "device")


def read_taint_rule(found: Document) -> TaintRule | None:
    """Return what a rule taints, and with which taint; None for a rule without a selector, which matches no device.

    Raises:
        InvalidRequest: it has an unknown selector, such as those by class or expression of the first versions.

    """
    spec = section(found, "spec")
    taint, selector = mapping(spec.get("taint"), "spec.taint"), spec.get("deviceSelector")
    if selector is None:
        return None
    named = mapping(selector, "spec.deviceSelector")
    for name, value in named.items():
        if name not in _KNOWN and value:
            raise invalid(f"spec.deviceSelector.{name}", value, f"{', '.join(_KNOWN)} are known; use these")
    applied = Taint(text(taint.get("key")), text(taint.get("value")), text(taint.get("effect")))
    return TaintRule(applied, *(text(named.get(name)) for name in _KNOWN))
