"""MutatingAdmissionPolicy: reinvocation, and the objects that mutations produce."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.policies.mutating_admission_policy import MutatingPolicy
from kubeloop.devcluster.api.served_resources import BY_KIND, get_served_resource
from kubeloop.devcluster.api.slow_work import LoopBudget
from kubeloop.kube.objects.resources import CONFIG_MAPS
from support.apiserver.policy_cluster import EVERY_RESOURCE, PolicyCluster

JSON = dict[str, Any]


def set_label(expression: str, name: str = "l") -> JSON:
    """Return the mutations that set label `name` to the value of `expression`."""
    text = f"Object{{metadata: Object.metadata{{labels: {{'{name}': {expression}}}}}}}"
    return {"mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}]}


@pytest.mark.parametrize(("reinvocation", "label"), [("Never", "none"), ("IfNeeded", "late")])
async def test_reinvoked_policy_sees_changes_of_later_policies(reinvocation, label):
    cluster = PolicyCluster()
    earlier = "has(object.metadata.labels) ? object.metadata.labels.?late.orValue('none') : 'none'"
    cluster.create_policy(
        {**set_label(f"string({earlier})"), "reinvocationPolicy": reinvocation}, kind="mutating", name="a"
    )
    cluster.create_policy({**set_label("'late'", "late"), "reinvocationPolicy": "Never"}, kind="mutating", name="b")
    assert cluster.create_config_map("x")["metadata"]["labels"] == {"l": label, "late": "late"}


async def test_mutated_object_passes_defaulting_and_admission_again():
    cluster = PolicyCluster()
    limits = {"type": "Container", "default": {"cpu": "1"}}
    cluster.request(
        "POST", "/api/v1/namespaces/default/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [limits]}}
    )
    text = "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'added', image: object.metadata.name}]}}"
    match = {"resourceRules": [{**EVERY_RESOURCE["resourceRules"][0], "operations": ["CREATE"], "resources": ["pods"]}]}
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}
    spec = {"matchConstraints": match, "mutations": [mutation], "reinvocationPolicy": "Never"}
    cluster.create_policy(spec, kind="mutating")
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    added = cluster.request("POST", "/api/v1/namespaces/default/pods", pod)["spec"]["containers"][-1]
    assert added["name"] == "added"
    assert added["imagePullPolicy"] == "Always"
    assert added["resources"]["limits"] == {"cpu": "1"}


async def test_policy_cannot_change_the_uid():
    cluster = PolicyCluster()
    patch = "[JSONPatch{op: 'add', path: '/metadata/uid', value: 'mine'}]"
    mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}
    cluster.create_policy({"mutations": [mutation], "reinvocationPolicy": "Never"}, kind="mutating")
    assert cluster.create_config_map("x")["metadata"]["uid"] != "mine"


def config_map_values() -> JSON:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    return {"object": obj, "oldObject": None, "request": {}, "namespaceObject": None, "params": None}


def run_policy(spec: JSON, *, conditions_only: bool = False) -> Any:
    """Run a policy on ConfigMap `a` and return the result."""
    served = get_served_resource(CONFIG_MAPS)
    policy = MutatingPolicy({"metadata": {"name": "p"}, "spec": spec})
    return policy.run(config_map_values(), served, served, LoopBudget(), conditions_only=conditions_only)


def test_run_applies_mutations_in_order():
    mutations = [*set_label("'1'")["mutations"], *set_label("object.metadata.labels.l + '2'", "m")["mutations"]]
    result = run_policy({"mutations": mutations})
    assert result.object["metadata"]["labels"] == {"l": "1", "m": "12"}
    assert (result.conditions_met, result.is_dirty, result.failures, result.fatal_error) == (True, True, [], "")


def test_run_reports_a_failed_mutation_and_continues():
    mutations = [*set_label("object.spec")["mutations"], *set_label("'1'", "m")["mutations"]]
    result = run_policy({"mutations": mutations})
    assert result.object["metadata"]["labels"] == {"m": "1"}
    assert len(result.failures) == 1


def test_run_stops_at_an_invalid_result():
    patch = {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/data', value: 1}]"}}
    result = run_policy({"mutations": [patch, *set_label("'1'")["mutations"]]})
    assert result.fatal_error
    assert "labels" not in result.object["metadata"]


@pytest.mark.parametrize(
    ("condition", "conditions_only", "conditions_met"),
    [
        pytest.param("true", False, True, id="condition is met"),
        pytest.param("false", False, False, id="condition is not met"),
        pytest.param("true", True, False, id="only conditions are evaluated"),
    ],
)
def test_run_mutates_if_conditions_are_met(condition: str, conditions_only: bool, conditions_met: bool):
    conditions = [{"name": "c", "expression": condition}]
    result = run_policy({**set_label("'1'"), "matchConditions": conditions}, conditions_only=conditions_only)
    assert (result.conditions_met, result.is_dirty) == (conditions_met, conditions_met)


def test_run_cannot_convert_a_built_in_kind_back():
    policy = MutatingPolicy({"metadata": {"name": "p"}, "spec": set_label("'1'")})
    core_event, event = BY_KIND["v1", "Event"], BY_KIND["events.k8s.io/v1", "Event"]
    values = config_map_values()
    values["object"] |= {"apiVersion": "events.k8s.io/v1", "kind": "Event"}
    result = policy.run(values, core_event, event, LoopBudget(), conditions_only=False)
    assert result.failures == ["converting (v1.Event) to (v1.Event): unknown conversion"]


NAMESPACE = "/api/v1/namespaces/default"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
NO_TYPE = "failed to convert patch object to typed object: no corresponding type for"


def cluster_that_changes(subresource: str, mutation: JSON) -> PolicyCluster:
    """Return a server with the objects "a" and a policy on one of their subresources."""
    cluster = PolicyCluster()
    container = {"name": "c", "image": "i"}
    cluster.request("POST", f"{NAMESPACE}/pods", {"metadata": {"name": "a"}, "spec": {"containers": [container]}})
    cluster.request("POST", f"{NAMESPACE}/serviceaccounts", {"metadata": {"name": "a"}})
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    deployment = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    cluster.request("POST", DEPLOYMENTS, {"metadata": {"name": "a"}, "spec": deployment})
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": [f"*/{subresource}"]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "reinvocationPolicy": "Never", **mutation}
    cluster.create_policy(spec, kind="mutating")
    return cluster


def set_field(path: str, value: str) -> JSON:
    """Return a mutation that sets a field to the value of an expression."""
    text = f"[JSONPatch{{op: 'add', path: '{path}', value: {value}}}]"
    return {"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": text}}]}


async def test_policy_changes_the_node_of_a_binding():
    cluster = cluster_that_changes("binding", set_field("/target/name", "'other'"))
    cluster.request("POST", f"{NAMESPACE}/pods/a/binding", {"metadata": {"name": "a"}, "target": {"name": "n"}})
    assert cluster.request("GET", f"{NAMESPACE}/pods/a")["spec"]["nodeName"] == "other"


async def test_policy_changes_the_labels_that_a_binding_adds():
    cluster = cluster_that_changes("binding", set_label("request.subResource"))
    cluster.request("POST", f"{NAMESPACE}/pods/a/binding", {"metadata": {"name": "a"}, "target": {"name": "n"}})
    assert cluster.request("GET", f"{NAMESPACE}/pods/a")["metadata"]["labels"] == {"l": "binding"}


async def test_policy_changes_the_options_of_an_eviction():
    cluster = cluster_that_changes("eviction", set_field("/deleteOptions", "{'dryRun': ['All']}"))
    cluster.request("POST", f"{NAMESPACE}/pods/a/eviction", {"metadata": {"name": "a"}})
    assert "deletionTimestamp" not in cluster.request("GET", f"{NAMESPACE}/pods/a")["metadata"]


async def test_policy_changes_the_audiences_of_a_token():
    cluster = cluster_that_changes("token", set_field("/spec/audiences", "['x']"))
    assert cluster.request("POST", f"{NAMESPACE}/serviceaccounts/a/token", {})["spec"]["audiences"] == ["x"]


async def test_policy_changes_the_replicas_of_a_scale():
    cluster = cluster_that_changes(
        "scale", set_field("/spec/replicas", "object.spec.replicas + oldObject.spec.replicas")
    )
    scale = {"metadata": {"name": "a", "namespace": "default"}, "spec": {"replicas": 4}}
    assert cluster.request("PUT", f"{DEPLOYMENTS}/a/scale", scale)["spec"]["replicas"] == 5
    assert cluster.request("GET", f"{DEPLOYMENTS}/a")["spec"]["replicas"] == 5


@pytest.mark.parametrize(
    ("method", "path", "subresource", "of_kind"),
    [
        ("POST", f"{NAMESPACE}/pods", "eviction", "policy/v1, Kind=Eviction"),
        ("POST", f"{NAMESPACE}/serviceaccounts", "token", "authentication.k8s.io/v1, Kind=TokenRequest"),
        ("PUT", DEPLOYMENTS, "scale", "autoscaling/v1, Kind=Scale"),
    ],
)
async def test_kind_of_a_subresource_has_no_apply_configuration(method, path, subresource, of_kind):
    cluster = cluster_that_changes(subresource, set_label("'x'"))
    refused = cluster.request(method, f"{path}/a/{subresource}", {"metadata": {"name": "a"}}, 403)
    assert refused["message"].endswith(f"{NO_TYPE} {of_kind}")


DEFINITION = {
    "metadata": {"name": "sets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "sets", "kind": "Set"},
        "versions": [{
            "name": "v1", "served": True, "storage": True,
            "subresources": {
                "status": {},
                "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
            },
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                name: {"type": "object", "properties": {"size": {"type": "integer"}}} for name in ("spec", "status")
            }}},
        }],
    },
}  # fmt: skip


async def test_policy_cannot_change_the_scale_of_a_custom_resource():
    cluster = cluster_that_changes("scale", set_field("/spec/replicas", "5"))
    cluster.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
    obj = {"apiVersion": "example.com/v1", "kind": "Set", "metadata": {"name": "a"}, "spec": {"size": 1}}
    path = "/apis/example.com/v1/namespaces/default/sets"
    cluster.request("POST", path, obj)
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 2}}
    refused = cluster.request("PUT", f"{path}/a/scale", scale, 403)
    assert refused["message"].endswith("request to convert CR to an invalid group/version: autoscaling/v1")


async def test_unknown_fields_that_a_policy_adds_to_a_custom_resource_are_pruned():
    mutation = set_field("/spec/unknown", "5")
    cluster = PolicyCluster()
    cluster.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["sets"]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "reinvocationPolicy": "Never", **mutation}
    cluster.create_policy(spec, kind="mutating")
    obj = {"apiVersion": "example.com/v1", "kind": "Set", "metadata": {"name": "a"}, "spec": {"size": 1}}
    assert cluster.request("POST", "/apis/example.com/v1/namespaces/default/sets", obj)["spec"] == {"size": 1}
