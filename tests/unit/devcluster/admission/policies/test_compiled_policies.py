"""Policies of a store: when they apply, when they are compiled, and their parameters."""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.admission.policies import compiled_policies
from kubeloop.devcluster.storage.data_directory import DataDirectory
from support.apiserver.policy_cluster import ADMISSION, CONFIG_MAPS, EVERY_RESOURCE, PolicyCluster

JSON = dict[str, Any]
FORBID_A: JSON = {"validations": [{"expression": "object == null || object.metadata.name != 'a'", "message": "no a"}]}


async def test_policy_applies_while_it_and_its_binding_exist():
    cluster = PolicyCluster()
    cluster.create_config_map("a")
    cluster.request("DELETE", f"{CONFIG_MAPS}/a")
    cluster.create_policy(FORBID_A)
    assert cluster.create_config_map("a", 422)["message"].endswith("denied request: no a")
    cluster.request("DELETE", f"{ADMISSION}/validatingadmissionpolicybindings/p")
    cluster.create_config_map("a")
    cluster.request("DELETE", f"{CONFIG_MAPS}/a")
    cluster.create_binding()
    cluster.create_config_map("a", 422)
    cluster.request(
        "PATCH", f"{ADMISSION}/validatingadmissionpolicies/p", {"spec": {"validations": [{"expression": "true"}]}}
    )
    cluster.create_config_map("a")
    cluster.request("DELETE", f"{ADMISSION}/validatingadmissionpolicies/p")
    cluster.create_config_map("b")


async def test_stored_policies_apply_after_a_restart(tmp_path):
    data_directory = DataDirectory(tmp_path)
    PolicyCluster(data_directory).create_policy(FORBID_A)
    data_directory.close()
    data_directory = DataDirectory(tmp_path)
    PolicyCluster(data_directory).create_config_map("a", 422)
    data_directory.close()


async def test_policy_is_compiled_once_per_spec(monkeypatch):
    compiled = []

    class CountingPolicy(compiled_policies.ValidatingPolicy):
        def __init__(self, obj: JSON) -> None:
            compiled.append(obj["metadata"]["name"])
            super().__init__(obj)

    monkeypatch.setattr(compiled_policies, "ValidatingPolicy", CountingPolicy)
    cluster = PolicyCluster()
    cluster.create_policy(FORBID_A)
    cluster.create_config_map("b")
    cluster.request("PATCH", f"{ADMISSION}/validatingadmissionpolicies/p/status", {"status": {"observedGeneration": 1}})
    cluster.create_policy(FORBID_A, name="q")
    cluster.create_config_map("c")
    assert compiled == ["p", "q"]


async def test_custom_resources_are_parameters_once_created():
    cluster = PolicyCluster()
    schema = {"type": "object", "properties": {"forbidden": {"type": "string"}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "limits", "singular": "limit", "kind": "Limit", "listKind": "LimitList"}
    definition = {
        "metadata": {"name": "limits.example.com"},
        "spec": {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]},
    }
    spec = {
        "paramKind": {"apiVersion": "example.com/v1", "kind": "Limit"},
        "matchConstraints": {"resourceRules": [{**EVERY_RESOURCE["resourceRules"][0], "resources": ["configmaps"]}]},
        "validations": [{"expression": "object.metadata.name != params.forbidden"}],
    }
    cluster.create_policy(spec, {"paramRef": {"name": "l", "parameterNotFoundAction": "Allow"}})
    message = cluster.create_config_map("a", 422)["message"]
    assert message.endswith("failed to find resource referenced by paramKind: 'example.com/v1, Kind=Limit'")
    cluster.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    cluster.create_config_map("a")
    limit = {"apiVersion": "example.com/v1", "kind": "Limit", "metadata": {"name": "l"}, "forbidden": "b"}
    cluster.request("POST", "/apis/example.com/v1/limits", limit)
    cluster.create_config_map("b", 422)
    cluster.create_config_map("c")
    # A policy cannot prevent deletions by the server, of objects whose definition is deleted.
    cluster.create_policy({"validations": [{"expression": "request.resource.resource != 'limits'"}]}, name="q")
    cluster.request("DELETE", "/apis/example.com/v1/limits/l", expect=422)
    cluster.request("DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/limits.example.com")
    assert cluster.request("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"] == []
