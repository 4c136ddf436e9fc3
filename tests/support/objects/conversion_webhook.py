"""A conversion webhook and its custom resource: version v1 has host and port in one field, v2 in two."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from kubeloop.devcluster.server.tls import create_certificate
from kubeloop.kube.clock import SystemClock

JSON = dict[str, Any]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION = f"{CRDS}/hosts.example.com"
V1, V2 = "/apis/example.com/v1/namespaces/default/hosts", "/apis/example.com/v2/namespaces/default/hosts"


class Webhook:
    """calls: the number of objects in each request. change: applied to every response before it is sent."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.url = self.ca = ""
        self.change: Callable[[JSON], JSON] = lambda review: review

    async def convert(self, http_request: web.Request) -> web.Response:
        review = await http_request.json()
        request = review["request"]
        self.calls.append(len(request["objects"]))
        converted = [self._converted(obj, request["desiredAPIVersion"]) for obj in request["objects"]]
        response = {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": converted}
        return web.json_response(self.change({**{k: review[k] for k in ("kind", "apiVersion")}, "response": response}))

    def _converted(self, obj: JSON, api_version: str) -> JSON:
        spec = obj.get("spec", {"address": ":0", "host": "", "port": 0})  # missing in a partial object that is applied
        if api_version.endswith("v2"):
            host, _, port = spec["address"].partition(":")
            spec = {"host": host, "port": int(port)}
        else:
            spec = {"address": f"{spec['host']}:{spec['port']}"}
        labels = {**obj["metadata"].get("labels", {}), "was": obj["apiVersion"].rpartition("/")[2]}
        return {**obj, "apiVersion": api_version, "metadata": {**obj["metadata"], "labels": labels}, "spec": spec}


@asynccontextmanager
async def running_webhook() -> AsyncIterator[Webhook]:
    webhook = Webhook()
    application = web.Application()
    application.router.add_post("/convert", webhook.convert)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    certificate = create_certificate(SystemClock())
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificate.context())
    await site.start()
    webhook.url = f"https://127.0.0.1:{runner.addresses[0][1]}/convert"
    webhook.ca = b64encode(certificate.authority.certificate_pem.encode()).decode()
    try:
        yield webhook
    finally:
        await runner.cleanup()


def definition(webhook: Webhook) -> JSON:
    def version(name: str, **fields: str) -> JSON:
        spec = {"type": "object", "properties": {field: {"type": type_} for field, type_ in fields.items()}}
        schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
        return {"name": name, "served": True, "storage": name == "v1", "schema": schema}

    client = {"url": webhook.url, "caBundle": webhook.ca}
    conversion = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "hosts.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "hosts", "singular": "host", "kind": "Host", "listKind": "HostList"},
            "versions": [version("v1", address="string"), version("v2", host="string", port="integer")],
            "conversion": {"strategy": "Webhook", "webhook": conversion},
        },
    }


def host(name: str, version: str = "v1", **spec: Any) -> JSON:
    spec = spec or ({"address": "a:1"} if version == "v1" else {"host": "b", "port": 2})
    return {"apiVersion": f"example.com/{version}", "kind": "Host", "metadata": {"name": name}, "spec": spec}
