"""What stages ask of the API server: the objects of a kind, changes of one, other objects applied.

Requests are made inside the process and pass through everything that those of clients do: admission, validation,
ownership. Source: KWOK's pkg/utils/lifecycle/apply.go, pkg/kwok/controllers/stage_controller.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from kubeloop.devcluster.api.request import Request, Response
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
    """The API server does not do it; the text is its message. code: of its answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Place:
    """Where the objects of a kind are. root: the path of its apiVersion."""

    root: str
    plural: str
    namespaced: bool

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        within = f"/namespaces/{quote(namespace)}" if self.namespaced and namespace else ""
        parts = [each for each in (quote(name), subresource) if each]
        return "/".join([f"{self.root}{within}/{self.plural}", *parts])


class StageRequests:
    """Requests to a server in this process, with its token."""

    def __init__(self, answer: Callable[[Request], Response], token: str) -> None:
        self._answer = answer
        self._token = token

    def _ask(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        type_: str = "application/json",
        user: str = "",
    ) -> Response:
        headers = {"authorization": f"Bearer {self._token}", "content-type": type_, "user-agent": AGENT}
        if user:
            headers["impersonate-user"] = user
        target = f"{target}?{urlencode(query)}" if query else target
        content = b"" if body is None else msgspec.json.encode(body)
        return self._answer(Request.of(method, target, headers, content))

    def _content(self, method: str, target: str, body: Any = None, **more: Any) -> JSON:
        response = self._ask(method, target, body, **more)
        assert isinstance(response.body, bytes)
        content: Any = msgspec.json.decode(response.body) if response.body.startswith(b"{") else {}
        if response.status >= 400:
            told = content.get("message") or response.body.decode(errors="replace").strip()
            raise Refused(response.status, told)
        return dict(content)

    def place(self, api_version: str, kind: str) -> Place | None:
        """Where objects of a kind are; None while it is not served."""
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            served = self._content("GET", root).get("resources") or ()
        except Refused:
            return None
        for each in served:
            if each["kind"] == kind and "/" not in each["name"]:
                return Place(root, each["name"], each["namespaced"])
        return None

    def all_of(self, place: Place) -> tuple[list[JSON], str]:
        """(all objects of a kind, the resourceVersion of that list). Raises Refused."""
        listed = self._content("GET", place.path())
        shared = {"apiVersion": listed["apiVersion"], "kind": listed["kind"].removesuffix("List")}
        return [{**shared, **each} for each in listed["items"]], listed["metadata"]["resourceVersion"]

    def watch(self, place: Place, version: str) -> WatchStream:
        """Changes since, in frames. Raises Refused."""
        query = {"watch": "1", "resourceVersion": version}
        response = self._ask("GET", place.path(), query=query)
        if not isinstance(response.body, WatchStream):
            raise Refused(response.status, "the watch is refused")
        return response.body

    def get(self, place: Place, namespace: str, name: str) -> JSON | None:
        try:
            return self._content("GET", place.path(namespace, name))
        except Refused as refused:
            if refused.code == 404:
                return None
            raise

    def patch(self, path: str, type_: str, body: Any, *, user: str = "") -> JSON:
        """Raises Refused."""
        query = {"fieldManager": AGENT, "force": "true"} if type_ == "apply" else None
        return self._content("PATCH", path, body, query=query, type_=_TYPES[type_], user=user)

    def delete(self, path: str) -> None:
        """Without grace. Raises Refused."""
        self._content("DELETE", path, query={"gracePeriodSeconds": "0"})

    def apply(self, obj: Any, namespace: str, type_: str, subresource: str, *, user: str = "") -> JSON:
        """Create an object, or change the one that is there, or a subresource of it.

        namespace: for one of a namespaced kind that names none. Raises Refused.
        """
        if not isinstance(obj, dict) or not obj.get("apiVersion") or not obj.get("kind"):
            raise Refused(400, "template must include apiVersion and kind")
        place = self.place(str(obj["apiVersion"]), str(obj["kind"]))
        if place is None:
            raise Refused(404, f"no kind {obj['kind']} is served in {obj['apiVersion']}")
        metadata = obj.get("metadata") or {}
        within = str(metadata.get("namespace") or namespace) if place.namespaced else ""
        obj = {**obj, "metadata": {**metadata, "namespace": within} if within else metadata}
        name = str(metadata.get("name") or "")
        if not subresource:
            try:
                return self._content("POST", place.path(within), obj, user=user)
            except Refused as refused:
                if refused.code != 409 or not name:
                    raise
        return self.patch(place.path(within, name, subresource), type_, obj, user=user)
