"""MutatingAdmissionPolicy: reinvocation, and the objects that mutations produce."""

from __future__ import annotations

from typing import Any

import pytest

from support.policy_cluster import EVERY_RESOURCE, PolicyCluster

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
