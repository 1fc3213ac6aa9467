"""What the kubelet of a node reports: who holds what, what pods may have, and its configuration.

Usage is read from its PodResources socket. If the socket has never answered, the kubelet's state files are used
instead. They may still name pods that have ended, so the record is marked as stale. If a file was never read, usage is
unknown. That is an error, because unknown does not mean free.

What pods may have is asked once in a while. The configuration is that of the kubelet's `configz`, which includes
flags, where the settings allow it; else, and until it has answered, that of the file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import yaml

from ullage.inventory.files import read_text
from ullage.kube.exporter.grpc import call
from ullage.kube.exporter.settings import ExporterSettings
from ullage.model.error import InvalidRequest, UllageError, Unavailable
from ullage.model.holding import Holding, PodHolding, Use
from ullage.model.resources import Resources
from ullage.model.topology import Kubelet
from ullage.wire.document import Document
from ullage.wire.topology.cpu_manager_state import CpuState, read_cpu_state
from ullage.wire.topology.device_checkpoint import DeviceState, read_device_state
from ullage.wire.topology.export import ALL_OF_IT
from ullage.wire.topology.kubelet_config import KubeletSettings, read_kubelet_config
from ullage.wire.topology.podresources import Allocatable, read_allocatable, read_pod_resources
from ullage.wire.topology.podresources_messages import GET_ALLOCATABLE, LIST, decode_allocatable, decode_list

OnError = Callable[[str, str], None]
"""Called with what could not be read or was left out: the source, and a sentence."""

AskConfigz = Callable[[], Awaitable[Document]]
"""Return the answer of the kubelet's `configz`."""

T = TypeVar("T")

_PLAIN = KubeletSettings(Kubelet(), Resources())


class KubeletReader:
    """Reads one kubelet. Whatever cannot be read is reported and keeps its last value."""

    def __init__(
        self,
        settings: ExporterSettings,
        on_error: OnError,
        *,
        configz: AskConfigz | None = None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """`configz` asks for the configuration; None: only the file is read. `steady` is a monotonic clock."""
        self._settings, self._on_error = settings, on_error
        self._configz, self._steady = configz, steady
        self._answered: Document | None = None
        self._allocatable = ALL_OF_IT
        self._asked_at: dict[str, float] = {}
        """When each of the two was answered last."""
        self._asked: Use | None = None
        self._cpus: CpuState | None = None
        self._devices: DeviceState | None = None
        self._config: KubeletSettings | None = None
        self.fresh = False
        """Whether the last read got everything from its current source."""

    async def use(self) -> Use | None:
        """Return who holds what; None if the settings name no source.

        Raises:
            Unavailable: neither the socket nor each of the files has ever been read.

        """
        self.fresh = True
        if self._settings.pod_resources is not None:
            self._asked = await self._ask(self._settings.pod_resources) or self._asked
            if self._asked is not None:
                return self._asked
        return self._kept()

    async def allocatable(self) -> Allocatable:
        """Return what pods may have, as the kubelet said last; everything if it has never answered."""
        if self._asked is not None and self._settings.pod_resources is not None and self._is_due(GET_ALLOCATABLE):
            try:
                answer = decode_allocatable(await call(self._settings.pod_resources, GET_ALLOCATABLE))
                self._allocatable, dropped = read_allocatable(answer)
            except UllageError as error:
                self._on_error("allocatable", error.message)
            else:
                self._asked_at[GET_ALLOCATABLE] = self._steady()
                self._report_dropped("allocatable", dropped)
        return self._allocatable

    async def settings(self, memory_bytes: int) -> KubeletSettings:
        """Return the configuration of the kubelet. `memory_bytes` is the memory of the node."""
        path, reserved = self._settings.kubelet_config, self._settings.reserved
        await self._ask_configz()
        if self._answered is not None:
            self._config, dropped = read_kubelet_config(self._answered, memory_bytes)
            self._report_dropped("configz", dropped)
        else:
            self._config = self._read(
                path, lambda text: read_kubelet_config(yaml.safe_load(text), memory_bytes), self._config
            )
        found = self._config or _PLAIN
        if self._config is None and self._cpus is not None:
            found = replace(found, kubelet=replace(found.kubelet, static_cpus=self._cpus.static))
        return found if reserved is None else replace(found, reserved=reserved, reserved_cpus=frozenset())

    async def _ask_configz(self) -> None:
        if self._configz is None or not self._is_due("configz"):
            return
        try:
            answer = await self._configz()
            if not isinstance(answer.get("kubeletconfig"), Mapping):
                raise InvalidRequest("there is no kubeletconfig in the answer")
        except UllageError as error:
            self._on_error("configz", error.message)
        else:
            self._asked_at["configz"], self._answered = self._steady(), answer

    def _is_due(self, name: str) -> bool:
        """Return whether something that changes seldom was not answered for a while."""
        return name not in self._asked_at or self._steady() - self._asked_at[name] >= self._settings.drift_s

    async def _ask(self, socket: Path) -> Use | None:
        try:
            return _whole(read_pod_resources(decode_list(await call(socket, LIST))))
        except UllageError as error:
            self.fresh = False
            self._on_error("pod-resources", error.message)
            return None

    def _kept(self) -> Use | None:
        """Return usage from the files. Entries of a pod in both files are merged by its uid."""
        settings = self._settings
        self._cpus = self._read_holders(settings.cpu_state, read_cpu_state, self._cpus)
        self._devices = self._read_holders(settings.device_checkpoint, read_device_state, self._devices)
        read = {settings.cpu_state: self._cpus, settings.device_checkpoint: self._devices}
        files = [path for path in read if path is not None]
        if missing := [str(path) for path in files if read[path] is None]:
            text = f"who holds what is unknown until {' and '.join(missing)} or the socket of PodResources can be read"
            raise Unavailable(text, code="holders-unknown")
        if settings.pod_resources is not None and not files:
            text = f"who holds what is unknown until {settings.pod_resources} answers"
            raise Unavailable(text, code="holders-unknown")
        uses = [state.use for state in (self._cpus, self._devices) if state is not None]
        return Use(_merged([pod for use in uses for pod in use.pods]), stale=True) if uses else None

    def _read_holders(
        self, path: Path | None, read: Callable[[object], tuple[T, tuple[str, ...]]], last: T | None
    ) -> T | None:
        return self._read(path, lambda text: (_whole(read(json.loads(text))), ()), last)

    def _read(self, path: Path | None, read: Callable[[str], tuple[T, tuple[str, ...]]], last: T | None) -> T | None:
        if path is None:
            return None
        try:
            text = read_text(path)
            if text is None:
                raise Unavailable("it does not exist, or cannot be read")
            found, dropped = read(text)
        except (UllageError, ValueError, RecursionError, yaml.YAMLError) as error:
            self.fresh = False
            self._on_error(str(path), str(error))
            return last
        self._report_dropped(str(path), dropped)
        return found

    def _report_dropped(self, source: str, dropped: tuple[str, ...]) -> None:
        for sentence in dropped:
            self._on_error(source, sentence)


def _whole(read: tuple[T, tuple[str, ...]]) -> T:
    """Return the usage that was read, if no entry of it was dropped.

    Raises:
        InvalidRequest: an entry cannot be parsed, so what it holds would count as free.

    """
    found, dropped = read
    if dropped:
        raise InvalidRequest(f"who holds what cannot be read: {'; '.join(dropped)}")
    return found


def _merged(pods: list[PodHolding]) -> tuple[PodHolding, ...]:
    """Return one entry for each uid, with one entry for each container."""
    found: dict[str, dict[str, Holding]] = {}
    for pod in pods:
        containers = found.setdefault(pod.uid, {})
        for one in pod.containers:
            known = containers.get(one.container, Holding(one.container))
            containers[one.container] = replace(
                known, cpus=known.cpus or one.cpus, devices=known.devices or one.devices
            )
    return tuple(PodHolding(uid=uid, containers=tuple(each.values())) for uid, each in sorted(found.items()))
