"""Classification of requests by FlowSchemas, as API priority and fairness does. No request is queued or rejected.

Starts when a client first reads or writes FlowSchemas: before, none knows their uids. Source: apiserver
pkg/util/flowcontrol (rule.go, apf_controller.go), pkg/server/filters/priority-and-fairness.go of v1.36.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.api.served_resources import FLOW_SCHEMAS, PRIORITY_LEVEL_CONFIGURATIONS
from kubeloop.devcluster.storage.store import Change, ObjectStore
from kubeloop.kube.json_object import JSON

_MAX_CLASSIFIED = 4096  # kinds of requests with a known FlowSchema
_SERVER_SEATS = 600  # kube-apiserver's --max-requests-inflight and --max-mutating-requests-inflight
_LONG_RUNNING = ("attach", "exec", "log", "portforward", "proxy")
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_SERVICE_ACCOUNT = re.compile(r"system:serviceaccount:([^:]+):([^:]+)")

Headers = Sequence[tuple[str, str]]


class FlowControl:
    """Finds the FlowSchema and the priority level of requests."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._is_subscribed = False
        self._schemas: list[tuple[JSON, Headers]] | None = None
        self._named_namespaces: set[str] = set()  # by rules of schemas; all others are alike
        self._classified: dict[tuple[Any, ...], Headers] = {}

    def headers(self, request: ApiRequest) -> Headers:
        """Return the headers that name the FlowSchema and the priority level of an authenticated request."""
        info, user = request.route, request.user
        if not user or not (self._is_subscribed or self._store.initial_objects_created(FLOW_SCHEMAS)):
            return ()
        if self._schemas is None:
            self._schemas = self._ordered_schemas()
        if info is not None and info.subresource in _LONG_RUNNING:
            return ()
        watches = bool(request.query) and request.flag("watch")
        requester = user.get("username"), *(user.get("groups") or ())
        if info is None:
            key: tuple[Any, ...] = (requester, request.method, request.path)
        else:
            resource, named = info.served.resource, bool(info.name)
            kind = resource.group, resource.plural, info.subresource
            namespace = info.namespace if info.namespace in self._named_namespaces else bool(info.namespace)
            key = (requester, request.method, watches, kind, namespace, named)
        headers = self._classified.get(key)
        if headers is None:
            if len(self._classified) >= _MAX_CLASSIFIED:
                self._classified.clear()
            digest = _attributes(request, watches=watches)
            matches = (headers for schema, headers in self._schemas if _matches(schema, user, digest))
            headers = self._classified[key] = next(matches, ())
        return headers

    def nominal_seats(self) -> dict[str, int]:
        """Return the share of each priority level in the requests at one time."""
        levels = self._store.list(PRIORITY_LEVEL_CONFIGURATIONS)
        shares = {level["metadata"]["name"]: _shares(level["spec"]) for level in levels}
        total = sum(shares.values())
        return {name: math.ceil(_SERVER_SEATS * share / total) if total else 0 for name, share in shares.items()}

    def _ordered_schemas(self) -> list[tuple[JSON, Headers]]:
        """Return the FlowSchemas whose level exists with their headers, in the order in which they are tried."""
        if not self._is_subscribed:
            self._is_subscribed = True
            for resource in (FLOW_SCHEMAS, PRIORITY_LEVEL_CONFIGURATIONS):
                self._store.subscribe(resource, self._reset)
        levels = {
            level["metadata"]["name"]: level["metadata"]["uid"]
            for level in self._store.list(PRIORITY_LEVEL_CONFIGURATIONS)
        }
        schemas = self._store.list(FLOW_SCHEMAS)  # by name
        self._named_namespaces = {
            namespace
            for schema in schemas
            for rule in schema["spec"].get("rules") or ()
            for resource_rule in rule.get("resourceRules") or ()
            for namespace in resource_rule.get("namespaces") or ()
        }
        return [
            (
                schema["spec"],
                (
                    ("X-Kubernetes-Pf-Flowschema-Uid", schema["metadata"]["uid"]),
                    ("X-Kubernetes-Pf-Prioritylevel-Uid", levels[level]),
                ),
            )
            for schema in sorted(schemas, key=lambda schema: schema["spec"].get("matchingPrecedence") or 0)
            if (level := schema["spec"]["priorityLevelConfiguration"]["name"]) in levels
        ]

    def _reset(self, _: Change) -> None:
        self._schemas = None
        self._classified.clear()


def _shares(spec: JSON) -> int:
    shares: int = (spec.get("limited") or spec.get("exempt") or {}).get("nominalConcurrencyShares") or 0
    return shares


def _attributes(request: ApiRequest, *, watches: bool) -> dict[str, str]:
    """Return the attributes of a request as rules name them; without "resource" for a path of no resource."""
    info = request.route
    if info is None:
        return {"verb": request.method.lower(), "path": request.path}
    verb = _VERBS.get(request.method, "get" if info.name else "list")
    if watches and verb in ("get", "list"):
        verb = "watch"
    elif verb == "delete" and not info.name:
        verb = "deletecollection"
    resource = info.served.resource
    return {
        "verb": verb,
        "group": resource.group,
        "resource": f"{resource.plural}/{info.subresource}" if info.subresource else resource.plural,
        "namespace": info.namespace,
    }


def _matches(schema: JSON, user: Mapping[str, Any], attributes: Mapping[str, str]) -> bool:
    rules: Iterable[JSON] = schema.get("rules") or ()
    matches = _matches_resource if "resource" in attributes else _matches_path
    field = "resourceRules" if "resource" in attributes else "nonResourceRules"
    return any(
        any(_is_subject(subject, user) for subject in rule.get("subjects") or ())
        and any(
            _has(entry.get("verbs"), attributes["verb"]) and matches(entry, attributes)
            for entry in rule.get(field) or ()
        )
        for rule in rules
    )


def _is_subject(subject: JSON, user: Mapping[str, Any]) -> bool:
    match subject.get("kind"):
        case "User":
            return subject["user"]["name"] in ("*", user.get("username"))
        case "Group":
            return subject["group"]["name"] == "*" or subject["group"]["name"] in (user.get("groups") or ())
        case "ServiceAccount":
            account = _SERVICE_ACCOUNT.fullmatch(user.get("username") or "")
            account_subject = subject["serviceAccount"]
            return (
                account is not None
                and account_subject["namespace"] == account[1]
                and account_subject["name"] in ("*", account[2])
            )
    return False


def _matches_resource(rule: JSON, attributes: Mapping[str, str]) -> bool:
    if not _has(rule.get("resources"), attributes["resource"]) or not _has(rule.get("apiGroups"), attributes["group"]):
        return False
    if not attributes["namespace"]:
        return bool(rule.get("clusterScope"))
    return _has(rule.get("namespaces"), attributes["namespace"])


def _matches_path(rule: JSON, attributes: Mapping[str, str]) -> bool:
    path = attributes["path"]
    return any(
        url in ("*", path) or path.startswith(url.removesuffix("*").rstrip("/") + "/")
        for url in rule.get("nonResourceURLs") or ()
    )


def _has(values: Sequence[str] | None, value: str) -> bool:
    return values is not None and ("*" in values or value in values)
