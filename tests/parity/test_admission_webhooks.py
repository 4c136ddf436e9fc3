"""Admission webhooks: responses, stored objects, warnings and reviews as with kube-apiserver."""

from __future__ import annotations

import asyncio
import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiohttp import web

from support.apiserver.http_api import HttpApi, ServerPair, server_pair
from support.objects.admission_webhook import (
    ALL_RULES,
    POD_RULES,
    AdmissionWebhook,
    configuration,
    configurations_path,
    label,
    patch,
    running_admission_webhook,
)

JSON = dict[str, Any]
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
PODS, CONFIG_MAPS = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
_GENERATED = ("uid", "creationTimestamp", "resourceVersion", "time", "lastTransitionTime", "clusterIP", "clusterIPs")
_SUFFIX = re.compile(r"\bg-[a-z0-9]{5}\b")
_UID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_RELOAD_SECONDS = 0.6  # within which kube-apiserver reads new configurations


def pod(name: str = "a", **spec: Any) -> JSON:
    spec = {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def config_map(name: str = "a", **metadata: Any) -> JSON:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"a": "b"}}


@dataclass
class Call:
    """One request."""

    method: str
    path: str
    body: Any = None
    content_type: str = "application/json"


@dataclass
class Scenario:
    """Configurations, and requests while they are in force. webhooks: by kind and configuration name."""

    name: str
    calls: list[Call]
    mutating: dict[str, list[JSON]] = field(default_factory=dict)
    validating: dict[str, list[JSON]] = field(default_factory=dict)


def differences(real: Any, ours: Any, path: str = "") -> Iterator[str]:
    """Yield the places where two values differ."""
    if isinstance(real, dict) and isinstance(ours, dict):
        for name in sorted({*real, *ours}):
            yield from differences(real.get(name, "absent"), ours.get(name, "absent"), f"{path}.{name}")
    elif isinstance(real, list | tuple) and isinstance(ours, list | tuple) and len(real) == len(ours):
        for index, (one, other) in enumerate(zip(real, ours, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif real != ours:
        yield f"{path}: real {real!r}, ours {ours!r}"


def _comparable(content: Any) -> Any:
    if isinstance(content, str):
        return _UID.sub("", _SUFFIX.sub("g-", content))
    if isinstance(content, dict):
        return {name: _comparable(inner) for name, inner in content.items() if name not in _GENERATED}
    return [_comparable(item) for item in content] if isinstance(content, list) else content


def _user(value: JSON, hook: AdmissionWebhook) -> JSON:
    """Return a review without the requester and what differs with every call."""
    value = copy.deepcopy(value)
    value["request"].pop("userInfo")
    return _comparable(value)


class Comparison:
    def __init__(self, servers: ServerPair, hook: AdmissionWebhook) -> None:
        self._servers = servers
        self._hook = hook
        self.differences: list[str] = []
        self.count = 0

    async def _send(self, server: HttpApi, call: Call) -> tuple[Any, ...]:
        self._hook.reviews.clear()
        response = await asyncio.to_thread(server.request, call.method, call.path, call.body, call.content_type)
        reviews = [
            (path, _user(review, self._hook))
            for path, review in self._hook.reviews
            if "accounts-of-tests" not in str(review)
        ]
        content = _comparable(response.content)
        return response.status, content, response.warnings, sorted(reviews, key=partial(json.dumps, sort_keys=True))

    async def call(self, name: str, call: Call) -> None:
        self.count += 1
        real, ours = [await self._send(server, call) for server in (self._servers.real, self._servers.ours)]
        for part, one, other in zip(("status", "content", "warnings", "reviews"), real, ours, strict=True):
            for difference in differences(one, other):
                self.differences.append(f"{name}: {call.method} {call.path}: {part}{difference}")

    async def run(self, scenario: Scenario) -> None:
        kinds = {"mutating": scenario.mutating, "validating": scenario.validating}
        created = [(kind, name, webhooks) for kind, all_ in kinds.items() for name, webhooks in all_.items()]
        for kind, name, webhooks in created:
            await self.call(
                scenario.name, Call("POST", configurations_path(kind), configuration(kind, name, *webhooks))
            )
        await asyncio.sleep(_RELOAD_SECONDS)
        for call in scenario.calls:
            await self.call(scenario.name, call)
        for kind, name, _ in created:
            await self.call(scenario.name, Call("DELETE", f"{configurations_path(kind)}/{name}"))
        await asyncio.sleep(_RELOAD_SECONDS)
        for path in (PODS, CONFIG_MAPS, DEPLOYMENTS):
            await self.call(scenario.name, Call("DELETE", f"{path}?gracePeriodSeconds=0"))


def _writes(path: str, create: Callable[..., JSON]) -> list[Call]:
    """Return one request of each kind of write."""
    return [
        Call("POST", path, create()),
        Call("POST", f"{path}?dryRun=All", create("dry")),
        Call("GET", f"{path}/a"),
        Call("PATCH", f"{path}/a", {"metadata": {"annotations": {"x": "y"}}}, MERGE),
        Call("PATCH", f"{path}/b?fieldManager=m", create("b"), APPLY),
        Call("PATCH", f"{path}/b?fieldManager=m", create("b"), APPLY),
        Call("POST", path, {**create(), "metadata": {"generateName": "g-"}}),
        Call("POST", path, create()),
        Call("DELETE", f"{path}/a?gracePeriodSeconds=0"),
        Call("DELETE", f"{path}/none"),
    ]


def _redirect(code: int, location: str) -> Callable[[JSON], web.Response]:
    return lambda _: web.Response(status=code, headers={"Location": location} if location else {})


def _scenarios(hook: AdmissionWebhook) -> list[Scenario]:
    answers, webhook = hook.answers, hook.webhook
    answers["/deny"] = {"allowed": False}
    answers["/deny-message"] = {"allowed": False, "status": {"message": "not today"}}
    answers["/deny-reason"] = {"allowed": False, "status": {"reason": "Because", "code": 418}}
    answers["/deny-all"] = {
        "allowed": False,
        "status": {
            "status": "Success",
            "message": "m",
            "reason": "Forbidden",
            "code": 403,
            "details": {"name": "n", "causes": [{"message": "c", "field": "f"}]},
        },
    }
    answers["/deny-low"] = {"allowed": False, "status": {"code": 200, "message": "m"}}
    answers["/warn"] = {"warnings": ["one", 'two "quoted" \n line', "x" * 300]}
    answers["/label"] = label("one")
    answers["/add-container"] = patch(
        {"op": "add", "path": "/spec/containers/-", "value": {"name": "side", "image": "s"}}
    )
    answers["/no-uid"] = {"uid": "other"}
    answers["/no-patch-type"] = {"patch": label("x")["patch"]}
    answers["/no-patch"] = {"patchType": "JSONPatch"}
    answers["/other-patch-type"] = {**label("x"), "patchType": "Merge"}
    answers["/bad-patch"] = {"patchType": "JSONPatch", "patch": "eA=="}
    answers["/object-patch"] = {"patchType": "JSONPatch", "patch": "e30="}
    answers["/empty-patch"] = {"patchType": "JSONPatch", "patch": "W10="}
    answers["/missing-path"] = patch({"op": "add", "path": "/metadata/none/x", "value": 1})
    answers["/failed-test"] = patch({"op": "test", "path": "/metadata/name", "value": "none"})
    answers["/remove-missing"] = patch({"op": "remove", "path": "/metadata/annotations"})
    answers["/wrong-type"] = patch({"op": "add", "path": "/metadata/labels", "value": 3})
    answers["/wrong-spec"] = patch({"op": "add", "path": "/spec", "value": "none"})
    answers["/unknown-field"] = patch({"op": "add", "path": "/metadata/colour", "value": "red"})
    answers["/invalid"] = patch({"op": "add", "path": "/metadata/labels", "value": {"-": "-"}})
    answers["/rename"] = patch({"op": "replace", "path": "/metadata/name", "value": "renamed"})
    answers["/managed"] = patch({"op": "add", "path": "/metadata/managedFields", "value": [{"operation": "X"}]})
    answers["/no-managed"] = patch({"op": "remove", "path": "/metadata/managedFields"})
    answers["/absent"] = lambda request: web.json_response(
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}
    )
    answers["/no-kind"] = lambda request: web.json_response({"response": {"uid": request["uid"], "allowed": True}})
    answers["/other-version"] = lambda request: web.json_response(
        {
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1beta1",
            "response": {"uid": request["uid"], "allowed": True},
        }
    )
    answers["/text"] = lambda _: web.Response(text="no json")
    answers["/cut"] = lambda _: web.Response(text='{"kind": "AdmissionReview",')
    answers["/yaml"] = lambda _: web.Response(text="a: b")
    answers["/other-kind"] = lambda _: web.json_response({"kind": "Pod", "apiVersion": "v1"})
    answers["/wrong-field"] = lambda request: web.json_response(
        {
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "response": {"uid": request["uid"], "allowed": "yes"},
        }
    )
    answers["/empty"] = lambda _: web.Response(body=b"", content_type="application/json")
    answers["/array"] = lambda _: web.json_response([])
    answers["/not-found"] = lambda _: web.Response(status=404, text="404 page not found")
    answers["/error"] = lambda _: web.Response(status=500, text="broken\n")
    answers["/forbidden"] = lambda _: web.Response(status=403, text="no entry")
    answers["/json-error"] = lambda _: web.json_response({"a": 1}, status=502)
    answers["/status"] = lambda _: web.json_response(
        {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "stat", "code": 409}, status=409
    )
    for code in (302, 307, 308):
        answers[f"/redirect-{code}"] = _redirect(code, "/ok?x=y")
    answers["/redirect-loop"] = _redirect(307, "/redirect-loop")
    answers["/redirect-nowhere"] = _redirect(303, "")
    answers["/redirect-dead"] = _redirect(307, "https://127.0.0.1:1/x")
    answers["/teapot"] = lambda _: web.Response(status=418, text="x")
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]},
        },
    }
    maps = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}]
    scenarios = [
        Scenario(
            "reviews of pods",
            _writes(PODS, pod),
            {"m": [webhook("/ok", rules=ALL_RULES)]},
            {"v": [webhook("/ok-v", rules=ALL_RULES)]},
        ),
        Scenario("reviews of configmaps", _writes(CONFIG_MAPS, config_map), {"m": [webhook("/ok", rules=ALL_RULES)]}),
        Scenario(
            "v1beta1",
            _writes(CONFIG_MAPS, config_map),
            {"m": [webhook("/label", rules=maps, admissionReviewVersions=["v2", "v1beta1", "v1"])]},
            {"v": [webhook("/ok", rules=maps, admissionReviewVersions=["v1beta1"])]},
        ),
        Scenario(
            "several mutations",
            _writes(PODS, pod),
            {
                "a": [webhook("/label"), webhook("/add-container", reinvocationPolicy="IfNeeded")],
                "b": [webhook("/ok", reinvocationPolicy="IfNeeded")],
            },
            {"v": [webhook("/ok-v")]},
        ),
        Scenario(
            "reinvocation",
            [Call("POST", PODS, pod()), Call("PATCH", f"{PODS}/a", {"metadata": {"labels": {"q": "r"}}}, MERGE)],
            {
                "a": [webhook("/ok", reinvocationPolicy="IfNeeded")],
                "b": [webhook("/label", reinvocationPolicy="IfNeeded")],
                "c": [webhook("/ok-c")],
            },
        ),
        Scenario(
            "deployments",
            [
                Call("POST", DEPLOYMENTS, deployment),
                Call("GET", f"{DEPLOYMENTS}/a/scale"),
                Call("PATCH", f"{DEPLOYMENTS}/a/scale", {"spec": {"replicas": 2}}, MERGE),
                Call("PATCH", f"{DEPLOYMENTS}/a/status", {"status": {"observedGeneration": 1}}, MERGE),
                Call("DELETE", f"{DEPLOYMENTS}/a", {"propagationPolicy": "Background"}),
            ],
            {"m": [webhook("/ok", rules=ALL_RULES)]},
            {"v": [webhook("/ok-v", rules=ALL_RULES)]},
        ),
        Scenario(
            "subresources",
            [
                Call("POST", PODS, pod()),
                Call("POST", f"{PODS}/a/binding", {"target": {"kind": "Node", "name": "n"}}),
                Call("PATCH", f"{PODS}/a/status", {"status": {"message": "m"}}, MERGE),
                Call("POST", f"{PODS}/a/eviction?dryRun=All", {"metadata": {"name": "a"}}),
                Call(
                    "POST",
                    f"{PODS}/a/eviction",
                    {"metadata": {"name": "a"}, "deleteOptions": {"gracePeriodSeconds": 0}},
                ),
                Call("POST", "/api/v1/namespaces", {"metadata": {"name": "hooks", "labels": {"a": "b"}}}),
                Call("PATCH", "/api/v1/namespaces/hooks", {"metadata": {"labels": {"a": "c"}}}, MERGE),
                Call("DELETE", f"{CONFIG_MAPS}"),
                Call("DELETE", f"{PODS}?labelSelector=a%3Db"),
            ],
            {"m": [webhook("/ok", rules=ALL_RULES)]},
            {"v": [webhook("/ok-v", rules=ALL_RULES)]},
        ),
        Scenario(
            "namespace selector",
            [
                Call("POST", CONFIG_MAPS, config_map()),
                Call("POST", "/api/v1/namespaces/kube-public/configmaps", config_map("sel")),
                Call("POST", "/api/v1/namespaces/none/configmaps", config_map()),
                Call("DELETE", "/api/v1/namespaces/kube-public/configmaps/sel"),
                Call("POST", "/api/v1/namespaces?dryRun=All", {"metadata": {"name": "b", "labels": {"team": "x"}}}),
                Call("POST", "/api/v1/namespaces?dryRun=All", {"metadata": {"name": "c"}}),
            ],
            {
                "m": [
                    webhook(
                        "/label",
                        rules=ALL_RULES,
                        namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "default"}},
                    )
                ]
            },
            {"v": [webhook("/deny-message", rules=ALL_RULES, namespaceSelector={"matchLabels": {"team": "x"}})]},
        ),
        Scenario(
            "object selector",
            [
                Call("POST", CONFIG_MAPS, config_map(labels={"on": "1"})),
                Call("POST", CONFIG_MAPS, config_map("b")),
                Call("PATCH", f"{CONFIG_MAPS}/a", {"metadata": {"labels": None}}, MERGE),
                Call("PATCH", f"{CONFIG_MAPS}/a", {"data": {"x": "y"}}, MERGE),
            ],
            {
                "m": [
                    webhook(
                        "/ok", rules=maps, objectSelector={"matchExpressions": [{"key": "on", "operator": "Exists"}]}
                    )
                ]
            },
        ),
        Scenario(
            "match conditions",
            [
                Call("POST", CONFIG_MAPS, config_map()),
                Call("POST", CONFIG_MAPS, config_map("skipped")),
                Call("POST", CONFIG_MAPS, config_map("error")),
                Call("DELETE", f"{CONFIG_MAPS}/a"),
            ],
            {
                "m": [
                    webhook(
                        "/label",
                        rules=maps,
                        matchConditions=[
                            {"name": "not-skipped", "expression": "request.name != 'skipped'"},
                            {
                                "name": "object",
                                "expression": "object == null || object.metadata.name != 'error' || object.spec.x",
                            },
                        ],
                    )
                ]
            },
            {
                "v": [
                    webhook(
                        "/ok",
                        rules=maps,
                        failurePolicy="Ignore",
                        matchConditions=[{"name": "e", "expression": "object.spec.x"}],
                    )
                ]
            },
        ),
        Scenario(
            "scopes and versions",
            [
                Call("POST", CONFIG_MAPS, config_map()),
                Call("POST", "/api/v1/nodes?dryRun=All", {"metadata": {"name": "n"}}),
                Call(
                    "POST",
                    "/apis/events.k8s.io/v1/namespaces/default/events?dryRun=All",
                    {
                        "metadata": {"name": "e"},
                        "eventTime": "2026-01-01T00:00:00.000000Z",
                        "type": "Normal",
                        "reason": "r",
                        "action": "a",
                        "reportingController": "a.b/c",
                        "reportingInstance": "i",
                        "regarding": {"namespace": "default"},
                    },
                ),
                Call(
                    "POST",
                    "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers?dryRun=All",
                    {
                        "metadata": {"name": "h"},
                        "spec": {
                            "maxReplicas": 2,
                            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
                        },
                    },
                ),
            ],
            {
                "m": [
                    webhook("/label", rules=[{**ALL_RULES[0], "scope": "Cluster"}]),
                    webhook(
                        "/ok",
                        rules=[
                            {
                                "apiGroups": [""],
                                "apiVersions": ["v1"],
                                "resources": ["events"],
                                "operations": ["CREATE"],
                            },
                            {
                                "apiGroups": ["autoscaling"],
                                "apiVersions": ["v1"],
                                "resources": ["*"],
                                "operations": ["CREATE"],
                            },
                        ],
                    ),
                    webhook(
                        "/exact",
                        matchPolicy="Exact",
                        rules=[
                            {
                                "apiGroups": ["autoscaling"],
                                "apiVersions": ["v1"],
                                "resources": ["*"],
                                "operations": ["*"],
                            }
                        ],
                    ),
                ]
            },
        ),
        Scenario(
            "warnings",
            [Call("POST", CONFIG_MAPS, config_map())],
            {"m": [webhook("/warn", rules=maps)]},
            {"v": [webhook("/deny-message", rules=maps)]},
        ),
        Scenario(
            "dry run",
            [
                Call("POST", f"{CONFIG_MAPS}?dryRun=All", config_map()),
                Call("POST", CONFIG_MAPS, config_map()),
                Call("DELETE", f"{CONFIG_MAPS}/a?dryRun=All"),
            ],
            {"m": [webhook("/ok", rules=maps, sideEffects="NoneOnDryRun")]},
        ),
        Scenario(
            "own configurations",
            [
                Call("POST", configurations_path("validating"), configuration("validating", "own", webhook("/ok"))),
                Call(
                    "PATCH",
                    f"{configurations_path('validating')}/own",
                    {"webhooks": [{**webhook("/ok"), "failurePolicy": "Ignore"}]},
                    MERGE,
                ),
                Call("DELETE", f"{configurations_path('validating')}/own"),
            ],
            {"m": [webhook("/deny", rules=ALL_RULES)]},
            {"v": [webhook("/deny", rules=ALL_RULES)]},
        ),
        Scenario(
            "ignored failures",
            [Call("POST", CONFIG_MAPS, config_map())],
            {
                "m": [
                    webhook("/error", rules=maps, failurePolicy="Ignore"),
                    webhook("/no-uid", rules=maps, failurePolicy="Ignore"),
                    webhook("/label", rules=maps),
                ]
            },
            {"v": [webhook("/text", rules=maps, failurePolicy="Ignore")]},
        ),
        Scenario(
            "ignored failures deny",
            [Call("POST", CONFIG_MAPS, config_map())],
            {"m": [webhook("/deny-message", rules=maps, failurePolicy="Ignore")]},
        ),
        Scenario(
            "unreachable",
            [Call("POST", CONFIG_MAPS, config_map())],
            {"m": [{**webhook("/x", rules=maps), "clientConfig": {"url": "https://127.0.0.1:1/x"}}]},
        ),
        Scenario(
            "unknown authority",
            [Call("POST", CONFIG_MAPS, config_map())],
            {},
            {"v": [{**webhook("/x", rules=maps), "clientConfig": {"url": f"{hook.url}/x"}}]},
        ),
        Scenario(
            "wrong name",
            [Call("POST", CONFIG_MAPS, config_map())],
            {},
            {
                "v": [
                    {
                        **webhook("/x", rules=maps),
                        "clientConfig": {"url": f"{hook.url.replace('127.0.0.1', 'localhost')}/x", "caBundle": hook.ca},
                    }
                ]
            },
        ),
        Scenario(
            "no service",
            [Call("POST", CONFIG_MAPS, config_map())],
            {},
            {
                "v": [
                    {
                        **webhook("/x", rules=maps),
                        "clientConfig": {"service": {"namespace": "default", "name": "none", "path": "/x"}},
                    }
                ]
            },
        ),
        Scenario(
            "services",
            [
                Call(
                    "POST",
                    "/api/v1/namespaces/default/services",
                    {"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 80}]}},
                ),
                Call("POST", CONFIG_MAPS, config_map()),
                Call("DELETE", "/api/v1/namespaces/default/services/hook"),
            ],
            {},
            {
                "v": [
                    {**webhook("/x", rules=maps), "clientConfig": {"service": {"namespace": "default", "name": "hook"}}}
                ]
            },
        ),
        Scenario(
            "delete denied",
            [Call("POST", CONFIG_MAPS, config_map()), Call("DELETE", f"{CONFIG_MAPS}/a"), Call("DELETE", CONFIG_MAPS)],
            {"m": [webhook("/label", rules=[{**maps[0], "operations": ["DELETE"]}])]},
        ),
    ]
    for path in (
        "/deny",
        "/deny-message",
        "/deny-reason",
        "/deny-all",
        "/deny-low",
        "/no-uid",
        "/absent",
        "/no-kind",
        "/text",
        "/empty",
        "/array",
        "/not-found",
        "/error",
        "/forbidden",
        "/json-error",
        "/status",
        "/teapot",
        "/other-version",
        "/cut",
        "/yaml",
        "/other-kind",
        "/wrong-field",
        "/redirect-302",
        "/redirect-307",
        "/redirect-308",
        "/redirect-loop",
        "/redirect-nowhere",
        "/redirect-dead",
    ):
        for kind in ("mutating", "validating"):
            one = {"x": [webhook(path, rules=maps)]}
            scenarios.append(Scenario(f"{kind} {path}", [Call("POST", CONFIG_MAPS, config_map())], **{kind: one}))
    for path in (
        "/no-patch-type",
        "/no-patch",
        "/other-patch-type",
        "/bad-patch",
        "/object-patch",
        "/empty-patch",
        "/missing-path",
        "/failed-test",
        "/remove-missing",
        "/wrong-type",
        "/wrong-spec",
        "/unknown-field",
        "/invalid",
        "/rename",
        "/managed",
        "/no-managed",
    ):
        calls = [Call("POST", CONFIG_MAPS, config_map()), Call("POST", PODS, pod()), Call("GET", f"{CONFIG_MAPS}/a")]
        rules = [*maps, *POD_RULES]
        scenarios.append(Scenario(f"patch {path}", calls, {"x": [webhook(path, rules=rules)]}))
        scenarios.append(Scenario(f"validating {path}", calls[:1], {}, {"x": [webhook(path, rules=rules)]}))
    return scenarios


def _definition() -> JSON:
    """Return a custom resource with two versions."""

    def version(name: str) -> JSON:
        spec = {"type": "object", "properties": {"color": {"type": "string"}}}
        schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
        subresources = {"status": {}}
        return {"name": name, "served": True, "storage": name == "v1", "schema": schema, "subresources": subresources}

    names = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"}
    versions = [version("v1"), version("v2")]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions},
    }


def _custom_resource_scenarios(hook: AdmissionWebhook) -> list[Scenario]:
    def gadget(version: str, name: str) -> JSON:
        api_version = f"example.com/{version}"
        return {"apiVersion": api_version, "kind": "Gadget", "metadata": {"name": name}, "spec": {"color": "red"}}

    def rules(version: str) -> list[JSON]:
        return [{"apiGroups": ["example.com"], "apiVersions": [version], "resources": ["*"], "operations": ["*"]}]

    v1, v2 = (f"/apis/example.com/{version}/namespaces/default/gadgets" for version in ("v1", "v2"))
    calls = [
        Call("POST", v1, gadget("v1", "a")),
        Call("POST", v2, gadget("v2", "b")),
        Call("PATCH", f"{v2}/a", {"spec": {"color": "blue"}}, MERGE),
        Call("PATCH", f"{v1}/c?fieldManager=m", gadget("v1", "c"), APPLY),
        Call("PATCH", f"{v1}/a/status", {"status": {"x": "y"}}, MERGE),
        Call("GET", v2),
        Call("DELETE", f"{v1}/a"),
        Call("DELETE", v2),
    ]
    hook.answers["/color"] = patch({"op": "add", "path": "/spec/color", "value": "green"})
    hook.answers["/color-type"] = patch({"op": "add", "path": "/spec/color", "value": 3})
    hook.answers["/unknown"] = patch({"op": "add", "path": "/spec/unknown", "value": "x"})
    return [
        Scenario(
            f"custom resource {path}",
            calls,
            {"m": [hook.webhook(path, rules=[{**rule, "operations": ["CREATE", "UPDATE"]} for rule in rules("v2")])]},
            {"v": [hook.webhook("/ok", rules=rules("v1")), hook.webhook("/ok-v", rules=rules("v2"))]},
        )
        for path in ("/color", "/color-type", "/unknown")
    ]


def _webhook_metrics(text: str) -> list[str]:
    """Return the samples of calls of webhooks, without those that depend on durations."""
    names = ("request_total", "rejection_count", "fail_open_count", "admission_duration_seconds_count")
    prefixes = tuple(f"apiserver_admission_{kind}_{name}" for kind in ("webhook", "match_condition") for name in names)
    lines = (line.removesuffix(".0") for line in text.splitlines() if line.startswith(prefixes))
    # the accounts of a namespace are created at another time
    return sorted(line for line in lines if 'name="ok' not in line)


def _invalid_configurations(webhook: JSON) -> list[JSON]:
    rule = POD_RULES[0]
    changes: list[JSON] = [
        {"name": ""},
        {"name": "a.b"},
        {"name": "A.b.c"},
        {"sideEffects": None},
        {"sideEffects": "Some"},
        {"sideEffects": "Unknown"},
        {"timeoutSeconds": 0},
        {"timeoutSeconds": 31},
        {"failurePolicy": "Maybe"},
        {"matchPolicy": "Maybe"},
        {"admissionReviewVersions": []},
        {"admissionReviewVersions": ["v2"]},
        {"admissionReviewVersions": ["v1", "v1"]},
        {"admissionReviewVersions": ["v1", "1v"]},
        {"clientConfig": {}},
        {"clientConfig": {"url": "http://a"}},
        {"clientConfig": {"url": "https://u@a/b?c#d"}},
        {"clientConfig": {"url": "https://a", "service": {"name": "a", "namespace": "b"}}},
        {"clientConfig": {"service": {"name": "", "namespace": "", "port": 0, "path": "a//B"}}},
        {"rules": [{}]},
        {"rules": [{**rule, "operations": ["*", "CREATE"]}]},
        {"rules": [{**rule, "operations": ["READ"]}]},
        {"rules": [{**rule, "apiGroups": ["*", "a"], "apiVersions": ["*", ""]}]},
        {"rules": [{**rule, "scope": "None"}]},
        {"rules": [{**rule, "resources": ["", "*/*", "pods", "pods/*", "pods/status", "*/status"]}]},
        {"rules": [{**rule, "resources": ["*", "pods"]}]},
        {"namespaceSelector": {"matchLabels": {"-": "-"}}},
        {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
        {"matchConditions": [{"name": "a", "expression": "object.x"}, {"name": "a", "expression": "1"}]},
        {"matchConditions": [{"name": "", "expression": ""}, {"name": "-", "expression": "x +"}]},
        {"matchConditions": [{"name": "a", "expression": "variables.x == 1"}]},
        {"matchConditions": [{"name": f"a{index}", "expression": "true"} for index in range(65)]},
        {
            "matchConditions": [
                {"name": "a", "expression": "[1,2,3].all(x, [1,2,3].all(y, object.z.all(z, z == x + y)))"}
            ]
        },
        {
            "matchConditions": [
                {"name": "a", "expression": "authorizer.group('').resource('pods').check('get').allowed()"}
            ]
        },
        {"reinvocationPolicy": "Maybe"},
        {"reinvocationPolicy": "IfNeeded"},
    ]
    return [{name: value for name, value in {**webhook, **change}.items() if value is not None} for change in changes]


async def test_admission_webhooks_match_kube_apiserver(tmp_path):
    with server_pair(tmp_path) as servers:
        async with running_admission_webhook() as hook:
            comparison = Comparison(servers, hook)
            for kind in ("mutating", "validating"):
                path = f"{configurations_path(kind)}?dryRun=All"
                for invalid in _invalid_configurations(hook.webhook("/ok")):
                    await comparison.call(f"invalid {kind}", Call("POST", path, configuration(kind, "a", invalid)))
                twice = [hook.webhook("/ok"), hook.webhook("/ok")]
                await comparison.call(f"twice {kind}", Call("POST", path, configuration(kind, "a", *twice)))
            definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            await comparison.call("definition", Call("POST", f"{definitions}?dryRun=All", _definition()))
            for server in (servers.real, servers.ours):
                await asyncio.to_thread(server.request, "POST", definitions, _definition())
            await asyncio.sleep(3)
            for scenario in (*_custom_resource_scenarios(hook), *_scenarios(hook)):
                await comparison.run(scenario)
            real, ours = [
                await asyncio.to_thread(server.request, "GET", "/metrics") for server in (servers.real, servers.ours)
            ]
            comparison.differences += differences(*(_webhook_metrics(page.body.decode()) for page in (real, ours)))
    assert comparison.count >= 200
    assert comparison.differences == [], "\n".join(comparison.differences)
