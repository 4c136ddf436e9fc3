"""Updates of pod specs that use a feature whose gate has been disabled."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.strategy import strategy_of
from kubeloop.devcluster.validation.common.error_list import ErrorList, error_list_type
from kubeloop.devcluster.validation.pod.stored_features import error_list_for_update
from kubeloop.devcluster.validation.validate import validate_create, validate_update
from kubeloop.kube.feature_gates import GATES, FeatureGates
from kubeloop.kube.objects.resources import DEPLOYMENTS
from support.objects.validation_causes import defaulted, pod, workload

JSON = dict[str, Any]

_RULE = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
_KEY = {"key": "v", "operator": "In", "values": ["1"]}
_FILE = {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}
USERS: dict[str, JSON] = {
    "EnvFiles": {"containers": [{"name": "c", "image": "i", "env": [{"name": "A", "valueFrom": _FILE}]}]},
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "z",
                "whenUnsatisfiable": "DoNotSchedule",
                "matchLabelKeys": ["v"],
                "labelSelector": {"matchExpressions": [_KEY]},
            }
        ]
    },
    "RestartAllContainersOnContainerExits": {
        "containers": [
            {
                "name": "c",
                "image": "i",
                "restartPolicy": "Never",
                "restartPolicyRules": [{**_RULE, "action": "RestartAllContainers"}],
            }
        ]
    },
    "SELinuxMount": {"securityContext": {"seLinuxChangePolicy": "MountOption"}},
    "TaintTolerationComparisonOperators": {"tolerations": [{"key": "a", "operator": "Gt", "value": "5"}]},
    "UserNamespacesHostNetworkSupport": {"hostUsers": False, "hostNetwork": True},
}


def deployment(spec: JSON, image: str = "i") -> JSON:
    template = {"metadata": {"labels": {"app": "a"}}, **pod(**spec)}
    template["spec"]["initContainers"] = [{"name": "init", "image": image}]
    return defaulted(DEPLOYMENTS, workload(template=template))


@pytest.mark.parametrize("gate", sorted(USERS.keys() - {"EnvFiles"}))
def test_update_may_keep_what_a_new_object_may_not_have(gate: str):
    error_list = error_list_type(FeatureGates({gate: False}))
    old, new = (deployment(USERS[gate], image) for image in ("i", "j"))
    assert validate_create(strategy_of(DEPLOYMENTS), DEPLOYMENTS, new, error_list=error_list) != []
    assert validate_update(strategy_of(DEPLOYMENTS), DEPLOYMENTS, new, old, error_list=error_list) == []
    unused = deployment({"securityContext": {}})
    assert validate_update(strategy_of(DEPLOYMENTS), DEPLOYMENTS, new, unused, error_list=error_list) != []


@pytest.mark.parametrize("gate", USERS)
def test_gate_counts_as_enabled_if_the_stored_spec_uses_it(gate: str):
    error_list = error_list_type(FeatureGates({gate: False}))
    assert error_list_for_update(error_list, USERS[gate]).gates.enabled(gate)
    assert not error_list_for_update(error_list, {"containers": [{"name": "c"}]}).gates.enabled(gate)


def test_sidecar_with_restart_rules_uses_the_gate():
    spec = {"initContainers": [{"name": "c", "restartPolicy": "Always", "restartPolicyRules": [_RULE]}]}
    error_list = error_list_type(FeatureGates({"RestartAllContainersOnContainerExits": False}))
    assert error_list_for_update(error_list, spec).gates.enabled("RestartAllContainersOnContainerExits")


def test_server_without_a_change_of_gates_has_one_class():
    assert error_list_for_update(ErrorList, {"tolerations": [{"key": "a"}]}) is ErrorList
    assert all(gate in GATES for gate in USERS)
