"""Validation of roles and role bindings."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kubeloop.devcluster.kinds.rbac.cluster_role import validate_cluster_role
from kubeloop.devcluster.kinds.rbac.cluster_role_binding import validate_cluster_role_binding
from kubeloop.devcluster.kinds.rbac.role import validate_role
from kubeloop.devcluster.kinds.rbac.role_binding import validate_role_binding, validate_role_binding_update
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes

GROUP = "rbac.authorization.k8s.io"
RULE = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}


@pytest.mark.parametrize(
    ("rule", "causes"),
    [
        pytest.param(RULE, [], id="valid"),
        pytest.param(
            {},
            [
                "rules[0].verbs: Required value: verbs must contain at least one value",
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
            ],
            id="empty rule",
        ),
        pytest.param(
            {**RULE, "nonResourceURLs": ["/healthz"]},
            [
                'rules[0].nonResourceURLs: Invalid value: ["/healthz"]: '
                "namespaced rules cannot apply to non-resource URLs",
                'rules[0].nonResourceURLs: Invalid value: ["/healthz"]: '
                "rules cannot apply to both regular resources and non-resource URLs",
            ],
            id="non-resource URLs",
        ),
    ],
)
def test_role_rule_causes(rule: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_role, {"rules": [rule]}) == causes


@pytest.mark.parametrize(
    ("role", "causes"),
    [
        pytest.param({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}]}, [], id="non-resource URLs"),
        pytest.param(
            {"aggregationRule": {}},
            [
                "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if "
                "aggregationRule is non-nil"
            ],
            id="aggregation without selectors",
        ),
        pytest.param(
            {"aggregationRule": {"clusterRoleSelectors": [{"matchExpressions": [{"key": "a", "operator": "x"}]}]}},
            [
                "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].operator: Invalid value: "
                '"x": not a valid selector operator',
                "aggregationRule.clusterRoleSelectors[0]: Invalid value: null: invalid label selector.",
            ],
            id="aggregation with an invalid selector",
        ),
    ],
)
def test_cluster_role_causes(role: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_cluster_role, role) == causes


def binding(role_kind: str = "Role", **subject: str) -> JSON:
    return {"roleRef": {"apiGroup": GROUP, "kind": role_kind, "name": "r"}, "subjects": [subject] if subject else []}


@pytest.mark.parametrize(
    ("validator", "obj", "causes"),
    [
        pytest.param(validate_role_binding, binding("ClusterRole"), [], id="ClusterRole in a namespace"),
        pytest.param(
            validate_cluster_role_binding,
            binding("Role"),
            ['roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"'],
            id="Role in a cluster role binding",
        ),
        pytest.param(
            validate_role_binding,
            {"roleRef": {"kind": "Role", "apiGroup": "v1"}},
            [
                f'roleRef.apiGroup: Unsupported value: "v1": supported values: "{GROUP}"',
                "roleRef.name: Required value",
            ],
            id="role reference without name and with another group",
        ),
        pytest.param(
            validate_cluster_role_binding,
            binding("ClusterRole", kind="ServiceAccount", name="a", apiGroup=GROUP),
            [
                f'subjects[0].apiGroup: Unsupported value: "{GROUP}": supported values: ""',
                "subjects[0].namespace: Required value",
            ],
            id="service account with a group and without namespace",
        ),
        pytest.param(
            validate_role_binding,
            {**binding(), "subjects": [{"kind": "Group"}, {"kind": "Team", "name": "t"}]},
            [
                "subjects[0].name: Required value",
                f'subjects[0].apiGroup: Unsupported value: "": supported values: "{GROUP}"',
                'subjects[1].kind: Unsupported value: "Team": supported values: "ServiceAccount", "User", "Group"',
            ],
            id="group without name and unknown kind of subject",
        ),
    ],
)
def test_role_binding_causes(validator: Callable[..., None], obj: JSON, causes: list[str]) -> None:
    assert validator_causes(validator, obj) == causes


def test_role_of_a_role_binding_is_immutable() -> None:
    assert validator_causes(validate_role_binding_update, binding(), binding()) == []
    assert validator_causes(validate_role_binding_update, binding("ClusterRole"), binding()) == [
        f'roleRef: Invalid value: {{"APIGroup":"{GROUP}","Kind":"ClusterRole","Name":"r"}}: cannot change roleRef'
    ]
