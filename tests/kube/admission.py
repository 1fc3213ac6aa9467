"""Mutating webhooks as an API server calls them, and a webhook for tests."""

import base64
import json
import ssl
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import trustme
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.kube.listening import served
from tests.kube.patches import apply_operations
from tests.kube.rules import Refused
from tests.kube.store import Item

Review = Callable[[Item], Item]
"""From the request of a review to its response, without the uid."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A webhook for created pods: its address, its CA, and whether its failure refuses them."""

    url: str
    ca: bytes
    namespace: str
    fail: bool = True
    asked: list[Item] = field(default_factory=list)
    """The requests so far."""

    def configuration(self) -> Item:
        """The same as an object for an API server."""
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        only = {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}
        webhook = {
            "name": "pods.ullage.dev",
            "clientConfig": {"url": self.url, "caBundle": base64.b64encode(self.ca).decode()},
            "rules": [rule],
            "namespaceSelector": only,
            "failurePolicy": "Fail" if self.fail else "Ignore",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 30,
        }
        return {"metadata": {"name": self.namespace}, "webhooks": [webhook]}

    async def admit(self, body: Item, user: str = "admin") -> Item:
        """The pod as the webhook wants it; Refused if it does not want it."""
        request: Item = {
            "uid": str(uuid.uuid4()),
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": body["metadata"].get("name", ""),
            "namespace": self.namespace,
            "operation": "CREATE",
            "userInfo": {"username": user},
            "object": {"kind": "Pod", "apiVersion": "v1", **body, "status": {}},
            "oldObject": None,
            "dryRun": False,
        }
        try:
            response = await self._ask(request)
        except (httpx2.HTTPError, ValueError, LookupError) as error:
            if self.fail:
                raise Refused(500, "InternalError", f"failed calling webhook: {error}") from None
            return body
        if not response["allowed"]:
            status = response.get("status") or {}
            message = f"admission webhook denied the request: {status.get('message', 'without explanation')}"
            raise Refused(max(status.get("code", 400), 400), status.get("reason", ""), message)
        if "patch" not in response:
            return body
        admitted: Item = apply_operations(request["object"], json.loads(base64.b64decode(response["patch"])))
        return admitted

    async def _ask(self, request: Item) -> Item:
        trusted = ssl.create_default_context(cadata=self.ca.decode())
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        async with httpx2.AsyncClient(verify=trusted, trust_env=False, timeout=60) as client:
            answer = await client.post(self.url, params={"timeout": "30s"}, json=review)
        response: Item = answer.raise_for_status().json()["response"]
        if response["uid"] != request["uid"]:
            raise ValueError(f"expected response.uid={request['uid']!r}")
        return response


@asynccontextmanager
async def webhook(review: Review, namespace: str, folder: Path, *, fail: bool = True) -> AsyncIterator[Hook]:
    """A webhook that answers over TLS what `review` says."""
    authority = trustme.CA()
    pair = authority.issue_cert("127.0.0.1")
    pair.private_key_and_cert_chain_pem.write_to_path(folder / "webhook.pem")

    async def answer(request: Request) -> Response:
        hook.asked.append((await request.json())["request"])
        response = {"uid": hook.asked[-1]["uid"], **review(hook.asked[-1])}
        return JSONResponse({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})

    app = Starlette(routes=[Route("/webhook", answer, methods=["POST"])])
    pem = str(folder / "webhook.pem")
    async with served(app, ssl_certfile=pem, ssl_keyfile=pem) as port:
        hook = Hook(f"https://127.0.0.1:{port}/webhook", authority.cert_pem.bytes(), namespace, fail)
        yield hook


def patching(*operations: Item, **also: Any) -> Item:
    """The response of a review that changes the pod."""
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": patch, **also}
