"""`kube`: the scheduler of pods with cards, in front of a Kubernetes cluster."""

from __future__ import annotations

import argparse
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from ullage.cli.exits import complain
from ullage.cli.loading import loading
from ullage.model.error import Unavailable

_PACKAGES = ("httpx2", "lightkube", "numpy", "starlette", "uvicorn")
_IGNORED = ("kube-qps", "kube-burst", "device-config-file")
"""Options of HAMi's scheduler that are taken, so that its manifests go on, and change nothing."""


def configure_kube(parser: argparse.ArgumentParser) -> None:
    """`ullage kube`. What is not given is as `[kube]` in the settings says."""
    add = parser.add_argument
    flag = partial(add, type=_flag, nargs="?", const=True, metavar="true|false")
    add("--config", type=Path, metavar="FILE", help="settings (see [kube] there); options go before them")
    add("--kubeconfig", metavar="FILE", help="how to reach the API (default: the service account of this pod)")
    add("--http_bind", "--http-bind", metavar="ADDRESS", help="where kube-scheduler asks (default: 127.0.0.1:8080)")
    add("--cert_file", "--cert-file", metavar="FILE", help="certificate for it")
    add("--key_file", "--key-file", metavar="FILE", help="key of the certificate")
    add("--client-ca-file", metavar="FILE", help="only who has a certificate of this CA is answered")
    add("--webhook-bind", metavar="ADDRESS", help="where the API server asks the webhook (default: there is none)")
    add("--webhook-cert-file", metavar="FILE", help="certificate for it")
    add("--webhook-key-file", metavar="FILE", help="key of the certificate")
    add("--metrics-bind-address", dest="metrics_bind", metavar="ADDRESS", help="metrics (default: 127.0.0.1:9395)")
    add("--scheduler-name", metavar="NAME", help="what the webhook writes on pods with cards (default: ullage)")
    add("--node-scheduler-policy", choices=("binpack", "spread"), help="how nodes are chosen")
    add("--gpu-scheduler-policy", choices=("binpack", "spread"), help="how cards are chosen")
    add("--node-label-selector", metavar="SELECTOR", help="which nodes count (default: all)")
    flag("--topologies", help="whether the cluster has Numatopology objects, as exporters write them (default: false)")
    flag(
        "--preemption",
        help="whether pods give way for parts of cards (default: true)",
    )
    add("--cleanup-startup-delay", metavar="DURATION", help="then pods go whose cards are on no node (default: never)")
    flag("--claims", help="whether ResourceClaims are looked at, and those of our pods allocated (default: true)")
    add("--kube-timeout", dest="timeout_s", type=float, metavar="SECONDS", help="for one answer of the API")
    flag(
        "--force-overwrite-default-scheduler",
        help="whether the default scheduler's pods with cards are taken over (default: true)",
    )
    add(
        "--node-lock-timeout",
        dest="node_lock_timeout_s",
        type=_duration,
        metavar="DURATION",
        help="how long a lock for a device plugin counts (default: 5m)",
    )
    add(
        "--node-lock-retry-timeout",
        dest="node_lock_retry_s",
        type=_duration,
        metavar="DURATION",
        help="how long a pod waits for that lock (default: 28s)",
    )
    flag("--leader-elect", help="one process leads, always")
    for name in _IGNORED:
        add(f"--{name}", help="taken for HAMi's sake; it changes nothing here")
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
            complain(f"--{name.replace('_', '-')} changes nothing here", "leave it out")
    if given.pop("leader_elect", True) is False:
        complain("one process leads, always: two that both bind would place pods twice", "leave --leader-elect out")
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
