"""DeviceTaintRules: taints on devices from an administrator or a controller, in addition to those of drivers."""

from __future__ import annotations

from collections.abc import Callable

from ullage.kube.client.api import KubeApi
from ullage.kube.client.informer import Added, Changed, Delta, Removed
from ullage.kube.client.kinds import DEVICE_TAINT_RULES
from ullage.kube.client.objects import Object
from ullage.kube.client.served import LateInformer
from ullage.kube.controller import OnError
from ullage.model.error import InvalidRequest
from ullage.service.devices import Devices
from ullage.wire.dra.taint_rule import read_taint_rule


class TaintRules:
    """Enters them in the device books. Their `informer` watches the newest served version."""

    def __init__(self, api: KubeApi, devices: Devices, changed: Callable[[], None], on_error: OnError) -> None:
        """`changed` is called if a rule may help a waiting pod."""
        self._devices, self._changed, self._on_error = devices, changed, on_error
        self.informer = LateInformer(api, DEVICE_TAINT_RULES, self._on_rule)

    def _on_rule(self, delta: Delta[Object]) -> None:
        match delta:
            case Added(new) | Changed(_, new):
                name = new.metadata.name
                try:
                    self._devices.set_taint_rule(name, read_taint_rule(new.document))
                except InvalidRequest as error:  # its earlier taints stay
                    self._on_error("DeviceTaintRule", name, error)
            case Removed(last):
                self._devices.set_taint_rule(last.metadata.name, None)
        self._changed()
