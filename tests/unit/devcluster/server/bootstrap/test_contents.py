"""Content of bootstrap objects: identities, priority classes, flow control, RBAC and APIServices."""

from __future__ import annotations

from ipaddress import IPv4Network

import pytest

from kubeloop.devcluster.server.bootstrap import contents
from kubeloop.devcluster.server.bootstrap.contents import Identity
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.json_object import JSON


def test_identity_name_is_unique_per_host():
    assert Identity("a").name != Identity("b").name
    assert Identity("a", "192.0.2.1").name == Identity("a", "192.0.2.2").name


def test_system_namespaces_are_active_and_labelled():
    namespaces = list(contents.namespaces())
    assert [namespace.name for namespace in namespaces] == ["default", "kube-system", "kube-public", "kube-node-lease"]
    assert all(namespace.labels == {"kubernetes.io/metadata.name": namespace.name} for namespace in namespaces)
    assert all(namespace.status == {"phase": "Active"} for namespace in namespaces)


def test_flow_schemas_reference_bootstrap_priority_levels():
    levels = {level.name for level in contents.priority_levels()}
    references = {schema.content["spec"]["priorityLevelConfiguration"]["name"] for schema in contents.flow_schemas()}
    assert references <= levels


def test_dangling_condition_states_whether_the_level_exists():
    assert contents.dangling("x", exists=True)["status"] == "False"
    assert contents.dangling("x", exists=False)["reason"] == "NotFound"


def test_role_bindings_reference_bootstrap_roles():
    cluster_roles = {role.name for role in contents.role_objects("clusterroles")}
    roles = {(role.namespace, role.name) for role in contents.role_objects("roles")}
    for binding in contents.role_objects("rolebindings"):
        reference = binding.content["roleRef"]
        if reference["kind"] == "Role":
            assert (binding.namespace, reference["name"]) in roles
        else:
            assert reference["name"] in cluster_roles
    for binding in contents.role_objects("clusterrolebindings"):
        assert binding.content["roleRef"]["name"] in cluster_roles


def test_api_services_exclude_their_own_group():
    services = list(contents.api_services())
    assert {"v1.", "v1.apps", "v2.autoscaling"} <= {service.name for service in services}
    assert all("apiregistration" not in service.name for service in services)


def test_service_cidr_contains_the_service_range():
    cidr = contents.service_cidr(IPv4Network("10.0.0.0/24"))
    assert cidr.content["spec"] == {"cidrs": ["10.0.0.0/24"]}


def roles(kind: str, **gates: bool) -> dict[str, JSON]:
    objects = [{"metadata": {"name": role.name}, **role.content} for role in contents.role_objects(kind)]
    return {role["metadata"]["name"]: role for role in contents.roles_with_gates(objects, FeatureGates(gates))}


def test_roles_lack_the_rules_of_disabled_gates():
    default, role = roles("clusterroles"), "system:kube-scheduler"
    for gate, verbs, resource in (
        ("DRAExtendedResource", ["create", "delete"], "resourceclaims"),
        ("DRAResourceClaimGranularStatusAuthorization", ["patch", "update"], "resourceclaims/binding"),
    ):
        rule = {"verbs": verbs, "apiGroups": ["resource.k8s.io"], "resources": [resource]}
        rules = roles("clusterroles", **{gate: False})[role]["rules"]
        assert rules == [other for other in default[role]["rules"] if other != rule] != default[role]["rules"]
    urls = roles("clusterroles", ComponentStatusz=False)["system:monitoring"]["rules"][0]["nonResourceURLs"]
    assert urls == [url for url in default["system:monitoring"]["rules"][0]["nonResourceURLs"] if url != "/statusz"]


def test_roles_have_the_rules_of_enabled_gates():
    default, enabled = roles("clusterroles"), roles("clusterroles", DRADeviceTaintRules=True)

    def added(role: str) -> list[list[str]]:
        return [rule["resources"] for rule in enabled[role]["rules"] if rule not in default[role]["rules"]]

    assert added("system:kube-scheduler") == [["devicetaintrules"]]
    controller = "system:controller:device-taint-eviction-controller"
    assert added(controller) == [["devicetaintrules/status"], ["devicetaintrules"]]


@pytest.mark.parametrize("kind", ["clusterroles", "clusterrolebindings"])
def test_roles_of_disabled_controllers_do_not_exist(kind: str):
    removed = roles(kind).keys() - roles(kind, DRADeviceTaints=False).keys()
    assert removed == {"system:controller:device-taint-eviction-controller"}


def test_gates_that_are_off_by_default_add_roles_and_rules():
    gates = dict.fromkeys(("GenericWorkload", "WorkloadWithJob", "DRAWorkloadResourceClaims"), True)
    default, enabled = roles("clusterroles"), roles("clusterroles", **gates)
    assert enabled.keys() - default.keys() == {"system:controller:podgroup-protection-controller"}
    changed = {name for name in default if default[name]["rules"] != enabled[name]["rules"]}
    assert changed == {
        "system:aggregate-to-edit", "system:aggregate-to-view", "system:controller:job-controller",
        "system:controller:resource-claim-controller", "system:kube-scheduler",
    }  # fmt: skip


def test_api_services_are_those_of_the_served_versions():
    services = [{"spec": service.content["spec"]} for service in contents.api_services()]
    default = contents.services_with_gates(services, FeatureGates({}))
    enabled = contents.services_with_gates(services, FeatureGates({"GenericWorkload": True}))
    (added,) = [service["spec"] for service in enabled if service not in default]
    assert added == {
        "group": "scheduling.k8s.io", "version": "v1alpha2", "groupPriorityMinimum": 16600, "versionPriority": 2
    }  # fmt: skip
