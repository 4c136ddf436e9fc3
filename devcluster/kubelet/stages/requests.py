"""API requests of stages: list, watch, patch, delete and apply objects.

Requests are handled in this process and pass admission, validation and field ownership like those of clients. The
methods are handlers as in slow_work: they wait for webhooks and expensive expressions only.
Source: KWOK's pkg/utils/lifecycle/apply.go, pkg/kwok/controllers/stage_controller.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from kubeloop.devcluster.api.request import ApiRequest, Response
from kubeloop.devcluster.api.slow_work import Handling
from kubeloop.devcluster.storage.watch import WatchStream
from kubeloop.kube.json_object import JSON

AGENT = "kwok"
_TYPES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class Refused(Exception):
    """The API server refused a request; the text is its message. code: HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """Location of the objects of a kind. root: path of its apiVersion."""

    root: str
    plural: str
    namespaced: bool

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        within = f"/namespaces/{quote(namespace)}" if self.namespaced and namespace else ""
        parts = [part for part in (quote(name), subresource) if part]
        return "/".join([f"{self.root}{within}/{self.plural}", *parts])


class StageRequests:
    """Sends requests to a server in this process, with its token if it has one."""

    def __init__(self, handle: Callable[[ApiRequest], Handling[Response]], token: str | None) -> None:
        self._handle = handle
        self._token = token

    async def _send(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        type_: str = "application/json",
        user: str = "",
    ) -> Response:
        headers = {"content-type": type_, "user-agent": AGENT}
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        if user:
            headers["impersonate-user"] = user
        target = f"{target}?{urlencode(query)}" if query else target
        content = b"" if body is None else msgspec.json.encode(body)
        return await self._handle(ApiRequest.of(method, target, headers, content))

    async def _content(self, method: str, target: str, body: Any = None, **more: Any) -> JSON:
        response = await self._send(method, target, body, **more)
        assert isinstance(response.body, bytes)
        content: Any = msgspec.json.decode(response.body) if response.body.startswith(b"{") else {}
        if response.status >= 400:
            message = content.get("message") or response.body.decode(errors="replace").strip()
            raise Refused(response.status, message)
        return dict(content)

    async def resource_path(self, api_version: str, kind: str) -> ResourcePath | None:
        """Return the location of a kind; None while it is not served."""
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            served = (await self._content("GET", root)).get("resources") or ()
        except Refused:
            return None
        for resource in served:
            if resource["kind"] == kind and "/" not in resource["name"]:
                return ResourcePath(root, resource["name"], resource["namespaced"])
        return None

    async def list(self, location: ResourcePath) -> tuple[list[JSON], str]:
        """Return (all objects of a kind, resourceVersion of the list). Raises Refused."""
        object_list = await self._content("GET", location.path())
        shared = {"apiVersion": object_list["apiVersion"], "kind": object_list["kind"].removesuffix("List")}
        return [{**shared, **item} for item in object_list["items"]], object_list["metadata"]["resourceVersion"]

    async def watch(self, location: ResourcePath, version: str) -> WatchStream:
        """Watch changes after `version`. Raises Refused."""
        query = {"watch": "1", "resourceVersion": version}
        response = await self._send("GET", location.path(), query=query)
        if not isinstance(response.body, WatchStream):
            raise Refused(response.status, "the watch was refused")
        return response.body

    async def patch(self, path: str, type_: str, body: Any, *, user: str = "") -> JSON:
        """Send a patch. Raises Refused."""
        query = {"fieldManager": AGENT, "force": "true"} if type_ == "apply" else None
        return await self._content("PATCH", path, body, query=query, type_=_TYPES[type_], user=user)

    async def delete(self, path: str) -> None:
        """Delete without grace. Raises Refused."""
        await self._content("DELETE", path, query={"gracePeriodSeconds": "0"})

    async def apply(self, obj: Any, namespace: str, type_: str, subresource: str, *, user: str = "") -> JSON:
        """Create an object, or patch the existing one or a subresource of it. Raises Refused.

        namespace: default namespace of namespaced kinds.
        """
        if not isinstance(obj, dict) or not obj.get("apiVersion") or not obj.get("kind"):
            raise Refused(400, "template must include apiVersion and kind")
        location = await self.resource_path(str(obj["apiVersion"]), str(obj["kind"]))
        if location is None:
            raise Refused(404, f"kind {obj['kind']} is not served in {obj['apiVersion']}")
        metadata = obj.get("metadata") or {}
        within = str(metadata.get("namespace") or namespace) if location.namespaced else ""
        obj = {**obj, "metadata": {**metadata, "namespace": within} if within else metadata}
        name = str(metadata.get("name") or "")
        if not subresource:
            try:
                return await self._content("POST", location.path(within), obj, user=user)
            except Refused as refused:
                if refused.code != 409 or not name:
                    raise
        return await self.patch(location.path(within, name, subresource), type_, obj, user=user)
