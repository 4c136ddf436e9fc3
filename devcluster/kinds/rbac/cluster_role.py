"""ClusterRoles. Source: pkg/apis/rbac/validation of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.api.strategy import Strategy, update_as_create
from kubeloop.devcluster.authorization.escalation import check_role
from kubeloop.devcluster.kinds.rbac.role import validate_rules
from kubeloop.devcluster.validation.common.error_list import ErrorList, is_valid_selector, validate_label_selector
from kubeloop.devcluster.validation.common.object_meta import path_segment
from kubeloop.kube.json_object import JSON


def validate_cluster_role(errors: ErrorList, obj: JSON) -> None:
    validate_rules(errors, obj, namespaced=False)
    aggregation = obj.get("aggregationRule")
    if aggregation is not None:
        selectors = aggregation.get("clusterRoleSelectors", ())
        errors.require("aggregationRule.clusterRoleSelectors", selectors, f"{_SELECTORS} if aggregationRule is non-nil")
        for i, selector in enumerate(selectors):
            where = f"aggregationRule.clusterRoleSelectors[{i}]"
            validate_label_selector(errors, where, selector)
            if not is_valid_selector(selector):
                errors.invalid(where, None, "invalid label selector.")


_SELECTORS = "at least one clusterRoleSelector required"


STRATEGY = Strategy(
    name_check=path_segment,
    validate=validate_cluster_role,
    validate_update=update_as_create(validate_cluster_role),
    update_steps="wsu",
    authorize_write=check_role,
)
