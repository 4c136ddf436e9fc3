"""Type checking of ValidatingAdmissionPolicies beside kube-controller-manager: the same warnings in their status."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from support.apiserver.http_api import HttpApi
from support.comparison.controller_runs import difference, kubeloop_up
from support.comparison.real_apiserver import needs_binaries, real_apiserver
from support.processes.cli_processes import Kubeloop, wait_until

JSON = dict[str, Any]
CONTROLLER = "validatingadmissionpolicy-status-controller"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_UNIQUE = re.compile(r"\b([A-Z][A-Za-z]*?)\d+(?=[.,)\s])")  # the name of a type ends with nanoseconds

DEPLOYMENTS = ("apps", "v1", "deployments")
PODS = ("", "v1", "pods")
WIDGETS = ("example.com", "v1", "widgets")
CONFIG_MAP: JSON = {"apiVersion": "v1", "kind": "ConfigMap"}
EXPRESSIONS: dict[str, tuple[tuple[str, str, str], str]] = {
    "valid": (DEPLOYMENTS, "object.spec.replicas <= 5"),
    "comparison-of-types": (DEPLOYMENTS, "object.spec.replicas > '1'"),
    "misspelt-field": (DEPLOYMENTS, "object.spec.replics > 1"),
    "misspelt-field-of-old-object": (DEPLOYMENTS, "oldObject.spec.replics > 1"),
    "deep-field": (DEPLOYMENTS, "object.spec.template.spec.containers.all(c, c.imag != '')"),
    "deep-field-of-list": (DEPLOYMENTS, "object.spec.template.spec.containers[0].ports[0].containerport == 1"),
    "struct-and-number": (DEPLOYMENTS, "object.spec == 1"),
    "struct-and-string": (DEPLOYMENTS, "object.spec.template + 'x' == ''"),
    "two-errors": (DEPLOYMENTS, "object.a == 1 && object.b == 2"),
    "several-lines": (DEPLOYMENTS, "object.spec.replicas > 1 &&\n  object.spec.x == 2"),
    "syntax-error": (DEPLOYMENTS, "object.spec.replicas >"),
    "unknown-function": (DEPLOYMENTS, "object.spec.replicas.frobnicate()"),
    "unknown-variable": (DEPLOYMENTS, "objekt.spec.replicas > 1"),
    "string-result": (DEPLOYMENTS, "object.metadata.name"),
    "map-of-strings": (DEPLOYMENTS, "object.metadata.labels['app'] == 1"),
    "map-key": (DEPLOYMENTS, "object.metadata.labels[1] == 'x'"),
    "has": (DEPLOYMENTS, "has(object.spec.paus)"),
    "optional": (DEPLOYMENTS, "object.spec.?replicas.orValue('x') == 1"),
    "timestamp": (DEPLOYMENTS, "object.metadata.creationTimestamp > 5"),
    "int-or-string": (DEPLOYMENTS, "object.spec.strategy.rollingUpdate.maxSurge == 1"),
    "quantity": (PODS, "object.spec.containers[0].resources.limits['cpu'] == 1"),
    "quantity-function": (PODS, "quantity(object.spec.containers[0].resources.limits.cpu).isGreaterThan(1)"),
    "bytes": (("", "v1", "secrets"), "object.data['a'] == 'x'"),
    "request": (PODS, "request.operatio == 'CREATE'"),
    "request-type": (PODS, "request.name == 1"),
    "namespace-object": (PODS, "namespaceObject.metadata.lables.size() > 0"),
    "authorizer": (PODS, "authorizer.group('').resource('pods').chek('get').allowed()"),
    "authorizer-valid": (PODS, "authorizer.group('').resource('pods').check('get').allowed()"),
    "reserved-word": (("networking.k8s.io", "v1", "ingresses"), "object.spec.rules[0].http.paths[0].path == 1"),
    "custom-resource": (WIDGETS, "object.spec.siz == 1 || object.spec.size == 'x' || object.spec.limit > 'x'"),
    "custom-resource-valid": (WIDGETS, "object.spec.size == 1 && object.metadata.name == 'x' && object.kind == 'y'"),
    "custom-resource-metadata": (WIDGETS, "object.metadata.labels['a'] == 1"),
    "recursive-schema": (
        ("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
        "object.spec.versions[0].schema.openAPIV3Schema.properties['a'].typ == 'x'",
    ),
    "unknown-resource": (("apps", "v1", "nothings"), "object.x.y.z == 1"),
    "singular": (("apps", "v1", "deployment"), "object.spec.x == 1"),
    "core-group-means-any": (("", "v1", "deployments"), "object.spec.x == 1"),
    "core-group-events": (("", "v1", "events"), "object.x == 1"),
    "subresource": (("apps", "v1", "deployments/scale"), "object.spec.x == 1"),
    "wildcard-resource": (("apps", "v1", "*"), "object.spec.x == 1"),
    "wildcard-version": (("apps", "*", "deployments"), "object.spec.x == 1"),
    "raw-extension": (("apps", "v1", "controllerrevisions"), "object.data.x == 1 || object.revision == 'x'"),
    "any-type": (("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies"), "object.spec.x == 1"),
}


def rule(*resources: tuple[str, str, str]) -> JSON:
    groups, versions, names = (sorted({resource[index] for resource in resources}) for index in range(3))
    return {"apiGroups": groups, "apiVersions": versions, "operations": ["*"], "resources": names}


def policy(name: str, *resources: tuple[str, str, str], expression: str = "true", **spec: Any) -> JSON:
    return {
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule(*resources)]},
            "validations": [{"expression": expression}],
            **spec,
        },
    }


def policies() -> Iterator[JSON]:
    for name, (resource, expression) in EXPRESSIONS.items():
        yield policy(name, resource, expression=expression)
    yield policy("two-kinds", DEPLOYMENTS, ("apps", "v1", "statefulsets"), expression="object.spec.strategy.type == 1")
    yield policy(
        "ten-kinds",
        *(("", "v1", name) for name in ("pods", "services", "secrets", "configmaps", "nodes", "endpoints", "events")),
        *(("", "v1", name) for name in ("namespaces", "replicationcontrollers", "serviceaccounts", "limitranges")),
        expression="object.x == 1",
    )
    yield policy("params", DEPLOYMENTS, expression="params.dat.x == object.spec.replicas", paramKind=CONFIG_MAP)
    yield policy(
        "params-type", DEPLOYMENTS, expression="params.data['x'] == object.spec.replicas", paramKind=CONFIG_MAP
    )
    missing = {"apiVersion": "example.com/v1", "kind": "Missing"}
    yield policy("missing-params", DEPLOYMENTS, expression="params.x == object.spec.y", paramKind=missing)
    yield policy("no-params", DEPLOYMENTS, expression="params.x == 1")
    variables = [
        {"name": "replicas", "expression": "object.spec.replicas"},
        {"name": "names", "expression": "object.spec.template.spec.containers.map(c, c.name)"},
        {"name": "spec", "expression": "object.spec"},
        {"name": "wrong", "expression": "object.spec.nothing"},
        {"name": "of_wrong", "expression": "variables.wrong.x"},
        {"name": "labels", "expression": "object.metadata.labels"},
    ]
    for index, text in enumerate(
        (
            "variables.replicas == 'x'",
            "variables.names[0] == 1",
            "variables.spec.nothing == 1",
            "variables.wrong == 1 && variables.of_wrong == 'x'",
            "variables.labels['a'] == 1",
            "variables.missing == 1",
        )
    ):
        yield policy(f"variables-{index}", DEPLOYMENTS, expression=text, variables=variables)
    validations = [
        {"expression": "true", "messageExpression": "object.spec.x + 'y'"},
        {"expression": "object.y == 1", "messageExpression": "'replicas: ' + string(object.spec.replicas)"},
        {"expression": "true", "messageExpression": "object.spec.replicas"},
    ]
    yield policy("messages", DEPLOYMENTS, validations=validations)
    yield policy("conditions", DEPLOYMENTS, matchConditions=[{"name": "a", "expression": "object.spec.x == 1"}])


DEFINITION: JSON = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "size": {"type": "integer"},
                                    "limit": {"x-kubernetes-int-or-string": True},
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}


def run(api: HttpApi) -> JSON:
    """Return the expressionWarnings of each policy, or why it was refused."""
    assert api.request("POST", DEFINITIONS, DEFINITION).status == 201
    path = "/apis/example.com/v1/widgets"
    wait_until(lambda: api.request("GET", path).status == 200, "the custom resource")
    document = "/openapi/v3/apis/example.com/v1"
    wait_until(lambda: api.request("GET", document).status == 200, "the schema of the custom resource")
    refused = {}
    for body in policies():
        response = api.request("POST", POLICIES, body)
        if response.status != 201:
            refused[body["metadata"]["name"]] = response.content["message"]

    def all_observed() -> bool:
        items = api.request("GET", POLICIES).content["items"]
        return all(item.get("status", {}).get("observedGeneration") == 1 for item in items)

    wait_until(all_observed, "observedGeneration of all policies")
    observed = {
        item["metadata"]["name"]: [
            [warning["fieldRef"], _UNIQUE.sub(r"\1", warning["warning"])]
            for warning in item["status"]["typeChecking"].get("expressionWarnings", ())
        ]
        for item in api.request("GET", POLICIES).content["items"]
    }
    fields = api.request("GET", f"{POLICIES}/misspelt-field").content["metadata"]["managedFields"]
    managers = sorted(
        (entry["manager"], entry["operation"], entry.get("subresource", ""))
        for entry in fields
        if "subresource" in entry
    )
    return {"observed": observed, "refused": refused, "managers": managers, "later": later_statuses(api)}


def later_statuses(api: HttpApi) -> list[JSON]:
    """Return the statuses of a policy whose expression changes."""
    statuses = []
    path = f"{POLICIES}/misspelt-field"
    for generation, text in enumerate(("object.spec.replicas > 1", "object.spec.replics > 1", "true"), 2):
        patch = {"spec": {"validations": [{"expression": text}]}}
        assert api.request("PATCH", path, patch, "application/merge-patch+json").status == 200

        def is_observed(generation: int = generation) -> bool:
            return bool(api.request("GET", path).content["status"]["observedGeneration"] == generation)

        wait_until(is_observed, f"generation {generation}")
        statuses.append(api.request("GET", path).content["status"])
    return statuses


@contextmanager
def kubernetes(folder: Path) -> Iterator[Path]:
    with real_apiserver(folder) as server:
        server.start_component("kube-controller-manager", f"--controllers={CONTROLLER}", "--leader-elect=false")
        yield server.kubeconfig


@contextmanager
def kubeloop_run(folder: Path) -> Iterator[Path]:
    with (
        real_apiserver(folder) as server,
        Kubeloop(folder).running(
            "run", f"--kubeconfig={server.kubeconfig}", f"--controllers={CONTROLLER}", "--trace-journal="
        ),
    ):
        yield server.kubeconfig


def observations(start: Callable[[Path], Any], folder: Path) -> JSON:
    with start(folder) as kubeconfig, closing(HttpApi.from_kubeconfig(kubeconfig)) as api:
        return run(api)


def test_expression_warnings_match_kube_controller_manager(tmp_path):
    needs_binaries("kube-controller-manager")
    starts = (kubernetes, kubeloop_run, kubeloop_up)
    with ThreadPoolExecutor(3) as executor:
        real, ours, development = executor.map(lambda start: observations(start, tmp_path / start.__name__), starts)
    assert len(real["observed"]) >= 44
    assert sum(bool(warnings) for warnings in real["observed"].values()) >= 30
    report = difference(real, ours)
    assert not report, report
    report = difference(real, development)
    assert not report, report
