"""Ullage in front of a Kubernetes cluster: the extender, the webhook and the metrics, from start to end.

The process is crash-only: the API has the state, and a restart reads it from there. SIGTERM ends it: it accepts no new
request, answers those in progress, and releases the leadership at once.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ullage.bootstrap import log
from ullage.bootstrap.cluster_page.settings import ClusterSettings
from ullage.bootstrap.http.loop_thread import CompleteRequests, LoopThread
from ullage.bootstrap.kube_binding_settings import BindingsSection
from ullage.bootstrap.kube_front import FrontSettings, make_front
from ullage.bootstrap.kube_server import KubeServer, served
from ullage.bootstrap.kube_settings import KubeSection
from ullage.bootstrap.settings import Settings, read_settings
from ullage.bootstrap.strategies import load_strategies
from ullage.bootstrap.tls import TlsFiles
from ullage.bootstrap.warm import warm
from ullage.core.placing.rules import WORKERS_PER_NODE, Rules
from ullage.kube.answering import health_routes, readiness_route
from ullage.kube.bindings.callers import Admins, Authentication, ProxyHeaders, Tokens, caller_of
from ullage.kube.bindings.compute_resources import compute_resources
from ullage.kube.bindings.terms import BindingScope, BindingTerms
from ullage.kube.claims.claiming import claims_gate
from ullage.kube.client.api import Selection
from ullage.kube.client.connection import connect
from ullage.kube.client.http import HttpKubeApi, KubeTimeouts
from ullage.kube.client.lease import TERMS, Candidate, LeaseTerms
from ullage.kube.device_plugins import PluginTerms
from ullage.kube.extender.app import make_app
from ullage.kube.front import Front
from ullage.kube.metrics import FrontMetrics
from ullage.kube.mirror.cards import register_readers
from ullage.kube.mirror.zone_records import NrtOrder
from ullage.kube.pod_cache import CachedReader
from ullage.kube.shared_page import SharedPage
from ullage.kube.webhook.admission import bound_counts, named_queue, nowhere, over_quota, skips
from ullage.kube.webhook.app import make_webhook_app
from ullage.kube.webhook.webhook import AdmissionSettings, Webhook
from ullage.model.error import InvalidRequest, UllageError
from ullage.model.queue import Queue
from ullage.service.catalog import check_tree
from ullage.service.gates import RESERVE_AFTER_S
from ullage.wire import admission, compute_request
from ullage.wire.cluster_view import MOST_PLAN_BYTES

RENEW_S = 5.0
"""Seconds between two checks of the certificates."""

REPORT_S = 0.5
"""Seconds between two checks for changes to be logged."""

BEHIND_S = 180.0
"""Seconds without news of a kind after which a warning is logged even if requests are answered.

API servers send a bookmark about each minute.
"""

REVIEWS_AT_ONCE = 4
"""Reviews of the webhook that are decided at once."""

CALLS_AT_ONCE = 64
"""Requests from unknown callers that another server handles at once; these mostly wait."""


def serve_kube(config: Path | None, given: Mapping[str, object], *, terms: LeaseTerms | None = None) -> int:
    """Run until a signal ends it; return the exit code. `given` overrides `[kube]` in the file.

    Raises:
        InvalidRequest: a setting is wrong, a certificate cannot be read, or an installed strategy is broken.
        Unavailable: an address cannot be used.

    """
    import uvloop  # noqa: PLC0415 - imported where it is used: the import takes 20 ms

    load_strategies()
    settings = read_settings(config, os.environ)
    section = _overridden(settings.kube, given)
    section.check_callers()
    section.check_bindings()
    queues = settings.share_tree()
    check_tree(queues)
    waiting = PodQueues(queues, settings.policy.reserve_after_s)
    return uvloop.run(KubeProcess(section, _rules(settings, section), waiting, terms or terms_of(section)).run())


@dataclass(frozen=True, slots=True)
class PodQueues:
    """The queues in which pods wait for admission, and the seconds after which room is reserved for one."""

    tree: tuple[Queue, ...] = ()
    reserve_after_s: float = RESERVE_AFTER_S


class KubeProcess:
    """One process; `run` ends at SIGTERM or SIGINT, or at a failure that a restart may resolve."""

    def __init__(
        self,
        section: KubeSection,
        rules: Rules,
        queues: PodQueues = PodQueues(),
        terms: LeaseTerms = TERMS,
        *,
        renew_s: float = RENEW_S,
    ) -> None:
        self._section, self._rules, self._queues = section, rules, queues
        self._terms, self._renew_s = terms, renew_s
        self._end = asyncio.Event()

    async def run(self) -> int:
        """Serve; return 0 after a signal, 1 after a failure."""
        section, loop = self._section, asyncio.get_running_loop()
        kubeconfig = None if section.kubeconfig is None else Path(section.kubeconfig)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._end.set)
        async with connect(kubeconfig, section.context) as client:
            api = HttpKubeApi(client, KubeTimeouts(answer_s=section.timeout_s))
            candidate = Candidate(api, section.lease, section.namespace, self._terms)
            front = make_front(api, candidate, self._rules, _front_settings(section, self._queues), on_error=_log_error)
            with LoopThread() as loop_thread:
                async with served(self._servers(front, api, loop_thread)) as serving:
                    code = await self._lead(front, serving)
            await front.release()
        log.info("kube.ended", code=code)
        return code

    def _servers(self, front: Front, api: HttpKubeApi, loop_thread: LoopThread) -> dict[str, KubeServer]:
        """Return the servers; those that every pod of a cluster can reach have their own loop."""
        section, metrics = self._section, FrontMetrics(front, legacy=self._section.legacy_metrics)
        webhook = Webhook(
            AdmissionSettings(
                section.scheduler_name,
                section.force_overwrite_default_scheduler,
                section.runtime_class,
                section.queues,
                tree=self._queues.tree,
                binds_itself=section.binder == "ullage",
                claims_gate=claims_gate(section.domain) if section.claims else "",
                claims_from_words=section.claims_from_words,
                own_user=section.own_user,
                hami_users=section.hami_users,
            ),
            skips(front.followed.namespaces),
            over_quota(front.cluster),
            named_queue(front.followed.namespaces, section.domain),
            reader=CachedReader(section.pods),
            nowhere=nowhere(front.cluster, {rule.name for rule in section.pools}),
            bound=bound_counts(None if front.bindings is None else front.bindings.filter, front.cluster),
        )
        own = _tls(section.cert_file, section.key_file, section.client_ca_file)
        found = {"extender": KubeServer(make_app(front.extender, meter=metrics.call), section.http_bind, own)}
        if section.webhook_bind is not None:
            app = make_webhook_app(
                webhook,
                meter=metrics.call,
                unready=lambda: "" if front.followed.namespaces.synced else "namespaces are not read",
            )
            tls = _tls(section.webhook_cert_file, section.webhook_key_file)
            complete = CompleteRequests(app, most_bytes=admission.MAX_BODY, at_once=REVIEWS_AT_ONCE)
            found["webhook"] = KubeServer(complete, section.webhook_bind, tls, loop_thread)
        if section.bindings.bind is not None and front.bindings is not None:
            app = compute_resources(front.bindings.use, caller_of, metrics.call)
            tls = _tls(section.cert_file, section.key_file, section.bindings.proxy_ca_file)
            known = Authentication(app, _callers(section.bindings, api))
            complete = CompleteRequests(known, most_bytes=compute_request.MAX_BODY, at_once=CALLS_AT_ONCE)
            found["bindings"] = KubeServer(complete, section.bindings.bind, tls, loop_thread)
        if section.metrics_bind is not None:
            complete = CompleteRequests(_metrics_app(metrics, front), most_bytes=0, at_once=CALLS_AT_ONCE)
            found["metrics"] = KubeServer(complete, section.metrics_bind, None, loop_thread)
        if section.page_bind is not None:
            found["page"] = KubeServer(self._page(front), section.page_bind, None, loop_thread)
        return found

    def _page(self, front: Front) -> CompleteRequests:
        from ullage.bootstrap.cluster_page.routes import cluster_page  # noqa: PLC0415 - few processes have a page

        app = cluster_page(front, ClusterSettings(self._queues.tree))
        return CompleteRequests(app, most_bytes=MOST_PLAN_BYTES, at_once=CALLS_AT_ONCE)

    async def _lead(self, front: Front, serving: dict[str, KubeServer]) -> int:
        """Follow the cluster to the end; earlier requests are answered before another process may lead."""
        log.info("kube.serving", **{name: server.url for name, server in serving.items()})
        work = [asyncio.create_task(self._follow(front)), asyncio.create_task(self._renew(serving))]
        end = asyncio.create_task(self._end.wait())
        ends: list[asyncio.Future[None]] = [server.done for server in serving.values()]
        first: list[asyncio.Future[Any]] = [*work, *ends, end]
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            failed: list[asyncio.Future[None]] = [each for each in (*work, *ends) if each.done()]
            for server in serving.values():
                server.should_exit = True
            await asyncio.gather(*ends, return_exceptions=True)
        finally:
            for task in (*work, end):
                task.cancel()
            await asyncio.gather(*work, end, return_exceptions=True)
        for each in failed:
            log.error("kube.failed", error="".join(traceback.format_exception(each.exception())))
        return 1 if failed else 0

    async def _follow(self, front: Front) -> None:
        await warm()
        gc.collect()  # of what the compiler left
        reporting = asyncio.create_task(_report(front))
        try:
            await front.run()
        finally:
            reporting.cancel()

    async def _renew(self, serving: dict[str, KubeServer]) -> None:
        while True:
            await asyncio.sleep(self._renew_s)
            for name, server in serving.items():
                try:
                    if await server.renew():
                        log.info("kube.certificate-renewed", server=name)
                except InvalidRequest as error:
                    log.warning("kube.certificate-unusable", server=name, error=error.message)


def _metrics_app(metrics: FrontMetrics, front: Front) -> Starlette:
    shared = SharedPage(metrics.page)

    async def page(_: Request) -> Response:
        return Response(await shared.get(), media_type="text/plain; version=0.0.4; charset=utf-8")

    health = health_routes(lambda: front.extender.unready)
    return Starlette(routes=[Route("/metrics", page), *health, readiness_route("/followz", lambda: front.unfollowed)])


async def _report(front: Front) -> None:
    """Log the term of leadership, whether requests are answered, why not, and which kinds are behind."""
    term: int | None = None
    logged: tuple[str, tuple[str, ...]] | None = None
    while True:
        if front.candidate.epoch != term:
            term = front.candidate.epoch
            log.info("kube.leading" if term else "kube.following", identity=front.candidate.identity, epoch=term)
        unready = front.extender.unready
        errors = front.errors(0.0 if unready else BEHIND_S)
        if (now := (unready, tuple(errors))) != logged:
            logged = now
            if unready:
                log.warning("kube.not-ready", why=unready, errors=errors)
            elif errors:
                log.warning("kube.behind", errors=errors)
            else:
                log.info("kube.ready")
        await asyncio.sleep(REPORT_S)


def _log_error(kind: str, name: str, error: UllageError) -> None:
    log.warning("kube.unreadable", kind=kind, name=name, error=error.message)


def _overridden(section: KubeSection, given: Mapping[str, object]) -> KubeSection:
    return msgspec.structs.replace(section, **given)


def _front_settings(section: KubeSection, queues: PodQueues) -> FrontSettings:
    pods = section.pods
    for each in section.device_config.ignored:
        log.warning("kube.device-config", not_followed=each)
    return FrontSettings(
        pods=pods,
        readers=register_readers(pods.families),
        figures=section.figures,
        pools=section.pools,
        machines=Selection(labels=section.node_label_selector),
        topologies=section.topologies,
        noderesourcetopologies=NrtOrder(section.noderesourcetopologies),
        pessimistic_zones=section.pessimistic_zones,
        resource_quotas=section.resource_quotas,
        bindings=_binding_terms(section),
        cleanup_delay_s=section.cleanup_delay_s,
        queues=queues.tree,
        reserve_after_s=queues.reserve_after_s,
        preemption=section.preemption,
        offered_nodes=section.offered_nodes,
        claims=section.claims,
        claims_from_words=section.claims_from_words,
        card_drivers=section.drivers,
        scheduler=section.scheduler_name,
        plugins=PluginTerms(section.node_lock_timeout_s, section.node_lock_retry_s),
        choice_s=section.choice_timeout_s,
    )


def _binding_terms(section: KubeSection) -> BindingTerms | None:
    bindings = section.bindings
    if bindings.scope == "off":
        return None
    return BindingTerms(
        BindingScope(bindings.scope),
        strict=bindings.strict,
        name=bindings.ledger,
        namespace=section.namespace,
        allocations=bindings.allocations,
        quotas=bindings.owner_quotas,
    )


def _callers(section: BindingsSection, api: HttpKubeApi) -> Tokens | ProxyHeaders:
    admins = Admins(section.admins, section.admin_groups)
    return Tokens(api, admins, prefix=section.user_prefix) if section.proxy_ca_file is None else ProxyHeaders(admins)


def _rules(settings: Settings, section: KubeSection) -> Rules:
    rules = settings.requests()
    if rules.workers_per_node in (0, WORKERS_PER_NODE):
        rules = replace(rules, workers_per_node=None)  # nodes report their number of pods
    return rules if section.strategy is None else replace(rules, strategy=section.strategy)


def terms_of(section: KubeSection) -> LeaseTerms:
    """Return the terms of the Lease: a leader stops deciding well before another one leads."""
    return LeaseTerms(section.lease_s, section.renew_s, section.lease_s * 2 / 3)


def _tls(cert: str | None, key: str | None, client_ca: str | None = None) -> TlsFiles | None:
    if cert is None or key is None:
        return None
    return TlsFiles(Path(cert), Path(key), None if client_ca is None else Path(client_ca))
