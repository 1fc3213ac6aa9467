"""`ullage exporter`: publish the topology and usage of a node to its cluster."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ullage.model.error import InvalidRequest, Unavailable

_KUBELET = "/var/lib/kubelet"
_WORDS = {"true": True, "1": True, "false": False, "0": False}


def configure_exporter(parser: argparse.ArgumentParser) -> None:
    """Add the options. Those of Volcano's resource-exporter have the same names."""
    parser.add_argument(
        "--check-period", type=_seconds, default=3.0, metavar="TIME", help="time between two checks (default: 3s)"
    )
    parser.add_argument(
        "--device-path",
        default="/sys/devices/system",
        metavar="DIR",
        help="the kernel's files of the node; its other files are in the same tree (default: %(default)s)",
    )
    parser.add_argument(
        "--enable-pod-resource",
        type=_truth,
        nargs="?",
        const=True,
        default=True,
        metavar="BOOL",
        help="ask the kubelet for the holders before reading its files (default: true)",
    )
    for option, default, what in (
        ("--pod-resource-sock", "pod-resources/kubelet.sock", "the kubelet's PodResources socket"),
        ("--cpu-manager-state", "cpu_manager_state", "the state of its CPU manager"),
        (
            "--device-plugin-checkpoint",
            "device-plugins/kubelet_internal_checkpoint",
            "the state of its device manager",
        ),
        ("--kubelet-conf", "config.yaml", "its configuration"),
    ):
        parser.add_argument(
            option, default=f"{_KUBELET}/{default}", metavar="FILE", help=f"{what} (default: %(default)s)"
        )
    parser.add_argument(
        "--configz",
        action="store_true",
        help="ask the kubelet for its configuration through the API server: needs the right to get nodes/proxy",
    )
    parser.add_argument(
        "--res-reserved", metavar="LIST", help="reserved resources, instead of the kubelet's: cpu=1,memory=2Gi"
    )
    parser.add_argument("--master", metavar="URL", help="address of the API server (default: as in the kubeconfig)")
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="kubeconfig (default: the service account)")
    parser.add_argument(
        "--card-resource",
        default="",
        metavar="NAME",
        help="resource name of the cards, such as amd.com/gpu (default: that of the only kind of cards)",
    )
    parser.add_argument(
        "--resource",
        action="append",
        default=[],
        metavar="KIND=NAME",
        help="resource name of other devices, such as nic=example.com/nic; may be repeated",
    )
    parser.add_argument(
        "--objects",
        default="numatopology",
        metavar="LIST",
        help="objects to write: numatopology, noderesourcetopology or both, with commas (default: %(default)s)",
    )
    parser.set_defaults(act=_export)


def _export(arguments: argparse.Namespace) -> int:
    try:
        from ullage.kube.exporter.process import serve  # noqa: PLC0415 - needs the extra k8s
        from ullage.kube.exporter.report import read_objects  # noqa: PLC0415 - as above
        from ullage.kube.exporter.settings import (  # noqa: PLC0415 - as above
            NODE_VARIABLE,
            ExporterSettings,
            read_names,
            read_reserved,
            resource_name,
            root_of,
        )
    except ModuleNotFoundError as error:
        raise Unavailable(f"{error.name} is not installed; pip install 'ullage[k8s]'", code="not-installed") from None
    node = os.environ.get(NODE_VARIABLE, "")
    if not node:
        message = f"{NODE_VARIABLE}: it is not set; let it name the node, in a pod by the field spec.nodeName"
        raise InvalidRequest(message, field=NODE_VARIABLE)
    settings = ExporterSettings(
        node=node,
        root=root_of(Path(arguments.device_path)),
        pod_resources=Path(arguments.pod_resource_sock) if arguments.enable_pod_resource else None,
        cpu_state=_file(arguments.cpu_manager_state),
        device_checkpoint=_file(arguments.device_plugin_checkpoint),
        kubelet_config=_file(arguments.kubelet_conf),
        configz=arguments.configz,
        period_s=arguments.check_period,
        card_resource=resource_name(arguments.card_resource, "--card-resource") if arguments.card_resource else "",
        names=read_names(arguments.resource),
        objects=read_objects(arguments.objects),
        reserved=read_reserved(arguments.res_reserved) if arguments.res_reserved else None,
    )
    return serve(settings, arguments.kubeconfig, arguments.master)


def _file(text: str) -> Path | None:
    """Return the path; None for an empty text."""
    return Path(text) if text else None


def _truth(text: str) -> bool:
    if text.lower() not in _WORDS:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return _WORDS[text.lower()]


def _seconds(text: str) -> float:
    """Return a duration of at least one second."""
    from ullage.wire.pod.duration import parse_duration  # noqa: PLC0415 - needed only here

    seconds = parse_duration(text)
    if seconds is None or seconds < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration of at least one second, such as 3s or 1m")
    return seconds
