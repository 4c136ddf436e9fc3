"""ClusterRoleBindings. Source: pkg/apis/rbac/validation of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.authorization.escalation import check_binding
from kubeloop.devcluster.kinds.rbac.role_binding import (
    ROLE_BINDING_CELLS,
    default_role_binding,
    validate_binding,
    validate_same_role,
)
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.object_meta import path_segment
from kubeloop.kube.json_object import JSON


def validate_cluster_role_binding(errors: ErrorList, obj: JSON) -> None:
    validate_binding(errors, obj, ("ClusterRole",))


def validate_cluster_role_binding_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    validate_cluster_role_binding(errors, obj)
    validate_same_role(errors, obj, old)


STRATEGY = Strategy(
    default=default_role_binding,
    name_check=path_segment,
    validate=validate_cluster_role_binding,
    validate_update=validate_cluster_role_binding_update,
    update_steps="wsu",
    authorize_write=check_binding,
    cells=ROLE_BINDING_CELLS,
)
