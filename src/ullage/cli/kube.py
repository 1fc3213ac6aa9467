"""`ullage kube`: the scheduler of pods with cards for a Kubernetes cluster."""

from __future__ import annotations

import argparse
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from ullage.cli.exits import complain
from ullage.cli.loading import loading
from ullage.model.error import Unavailable

_PACKAGES = ("aiohttp", "httpx2", "lightkube", "numpy", "starlette", "uvicorn")
_IGNORED = ("kube-qps", "kube-burst")
"""Options of HAMi's scheduler that are accepted for its manifests, and ignored."""


def configure_kube(parser: argparse.ArgumentParser) -> None:
    """Add the options. Each overrides the setting of `[kube]`."""
    add = parser.add_argument
    flag = partial(add, type=_flag, nargs="?", const=True, metavar="true|false")
    add("--config", type=Path, metavar="FILE", help="settings; options override its table [kube]")
    add("--kubeconfig", metavar="FILE", help="kubeconfig of the API server (default: the service account of this pod)")
    add("--http_bind", "--http-bind", metavar="ADDRESS", help="address of the extender (default: 127.0.0.1:8080)")
    add("--cert_file", "--cert-file", metavar="FILE", help="certificate of the extender")
    add("--key_file", "--key-file", metavar="FILE", help="key of the certificate")
    add("--client-ca-file", metavar="FILE", help="accept only clients with a certificate of this CA")
    add("--webhook-bind", metavar="ADDRESS", help="address of the webhook (default: no webhook)")
    add("--webhook-cert-file", metavar="FILE", help="certificate of the webhook")
    add("--webhook-key-file", metavar="FILE", help="key of the certificate")
    add(
        "--metrics-bind-address",
        dest="metrics_bind",
        metavar="ADDRESS",
        help="address of the metrics (default: 127.0.0.1:9395)",
    )
    flag("--legacy-metrics", help="also write the former names of the metrics of HAMi's scheduler (default: false)")
    add("--page-bind", metavar="ADDRESS", help="address of the live page, for everybody (default: no page)")
    add("--scheduler-name", metavar="NAME", help="schedulerName that the webhook writes (default: ullage)")
    add("--node-scheduler-policy", choices=("binpack", "spread"), help="how nodes are chosen")
    add("--gpu-scheduler-policy", choices=("binpack", "spread"), help="how cards are chosen")
    add("--node-label-selector", metavar="SELECTOR", help="label selector of nodes (default: all)")
    flag("--topologies", help="read Numatopology objects, as exporters write them (default: false)")
    add(
        "--noderesourcetopologies",
        choices=("off", "second", "first"),
        help="read NodeResourceTopology objects, after or before Numatopology objects (default: off)",
    )
    flag("--preemption", help="evict pods for parts of cards (default: true)")
    add(
        "--cleanup-startup-delay",
        metavar="DURATION",
        help="delete pods whose cards are on no node, this long after the start (default: never)",
    )
    flag("--claims", help="read ResourceClaims and allocate those of our pods (default: true)")
    add("--kube-timeout", dest="timeout_s", type=float, metavar="SECONDS", help="timeout of one request to the API")
    flag(
        "--force-overwrite-default-scheduler",
        help="take over pods with cards of the default scheduler (default: true)",
    )
    add(
        "--node-lock-timeout",
        dest="node_lock_timeout_s",
        type=_duration,
        metavar="DURATION",
        help="when a lock for a device plugin expires (default: 5m)",
    )
    add(
        "--node-lock-retry-timeout",
        dest="node_lock_retry_s",
        type=_duration,
        metavar="DURATION",
        help="how long a pod waits for that lock (default: 28s)",
    )
    flag("--leader-elect", help="accepted for HAMi's manifests; one process always leads")
    add("--device-config-file", metavar="FILE", help="HAMi's device configuration: names, units and slices of vendors")
    for name in _IGNORED:
        add(f"--{name}", help="accepted for HAMi's manifests; ignored")
    parser.set_defaults(act=_kube)


def _kube(arguments: argparse.Namespace) -> int:
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise Unavailable(f"{', '.join(missing)} not installed: pip install 'ullage[server,k8s]'", code="not-installed")
    given = {name: value for name, value in vars(arguments).items() if value is not None}
    for name in ("act", "verb", "config"):
        given.pop(name, None)
    for name in (name.replace("-", "_") for name in _IGNORED):
        if given.pop(name, None) is not None:
            complain(f"--{name.replace('_', '-')} is ignored", "leave it out")
    if given.pop("leader_elect", True) is False:
        complain("one process always leads: two that bind would place pods twice", "leave --leader-elect out")
    with loading():
        from ullage.bootstrap.kube import serve_kube  # noqa: PLC0415  # the whole front, for this one verb
    return serve_kube(arguments.config, given)


def _duration(text: str) -> float:
    from ullage.wire.pod.duration import parse_duration  # noqa: PLC0415  # for this one verb

    seconds = parse_duration(text)
    if seconds is None:
        raise argparse.ArgumentTypeError("write a duration, such as 28s or 5m")
    return seconds


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError("write true or false")
    return text == "true"
