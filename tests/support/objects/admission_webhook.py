"""An admission webhook server with a behaviour per path, and configurations that call it."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from support.apiserver.certificates import issue

JSON = dict[str, Any]
GROUP = "/apis/admissionregistration.k8s.io/v1"
ALL_RULES = [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}]
POD_RULES = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["*"]}]


def patch(*operations: JSON) -> JSON:
    """Return the response fields of a JSON patch."""
    return {"patchType": "JSONPatch", "patch": b64encode(json.dumps(operations).encode()).decode()}


def label(name: str, value: str = "yes") -> JSON:
    """Return the response fields of a patch that sets labels to one label."""
    return patch({"op": "add", "path": "/metadata/labels", "value": {name: value}})


Answer = Callable[[JSON], JSON | web.Response]
"""From the request of a review to fields of the response, or to the whole HTTP response."""


class AdmissionWebhook:
    """answers: by path, the fields of responses besides uid and allowed. reviews: path and body of each call."""

    def __init__(self) -> None:
        self.answers: dict[str, JSON | Answer] = {}
        self.reviews: list[tuple[str, JSON]] = []
        self.url = self.ca = ""
        self.delay_seconds = 0.0

    async def review(self, http_request: web.Request) -> web.Response:
        review = await http_request.json()
        path, request = http_request.path, review["request"]
        self.reviews.append((http_request.path_qs, review))
        await asyncio.sleep(self.delay_seconds)
        answer = self.answers.get(path, {})
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, web.Response):
            return answer
        response = {"uid": request["uid"], "allowed": True, **answer}
        return web.json_response({"kind": review["kind"], "apiVersion": review["apiVersion"], "response": response})

    def client_config(self, path: str) -> JSON:
        return {"url": f"{self.url}{path}", "caBundle": self.ca}

    def webhook(self, path: str, **fields: Any) -> JSON:
        """Return a webhook that calls a path; its name is that of the path."""
        return {
            "name": f"{path.strip('/')}.example.com",
            "clientConfig": self.client_config(path),
            "rules": POD_RULES,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **fields,
        }


def configuration(kind: str, name: str, *webhooks: JSON) -> JSON:
    """Return a configuration. kind: "mutating" or "validating"."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind.capitalize()}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [*webhooks],
    }


def configurations_path(kind: str) -> str:
    return f"{GROUP}/{kind}webhookconfigurations"


@asynccontextmanager
async def running_admission_webhook() -> AsyncIterator[AdmissionWebhook]:
    webhook = AdmissionWebhook()
    application = web.Application()
    application.router.add_post("/{path:.*}", webhook.review)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    certificate = issue("webhook", hosts=("127.0.0.1", "hook.default.svc"))
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificate.server_context())
    await site.start()
    webhook.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    webhook.ca = b64encode(certificate.pem.encode()).decode()
    try:
        yield webhook
    finally:
        await runner.cleanup()
