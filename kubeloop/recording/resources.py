"""Resources that are recorded: all that decides about pods, without Secrets and ConfigMaps."""

from __future__ import annotations

from typing import Any, Final

from kubeloop.kube.objects import resources as served
from kubeloop.kube.objects.resources import Resource, json_resource

LIMIT_RANGES = json_resource("v1", "LimitRange", short="limits")
MUTATING_WEBHOOKS = json_resource("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", namespaced=False)
VALIDATING_WEBHOOKS = json_resource(
    "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", namespaced=False
)

RECORDED: Final[tuple[Resource[Any], ...]] = (
    served.NAMESPACES,
    served.NODES,
    served.PRIORITY_CLASSES,
    served.STORAGE_CLASSES,
    served.CSI_DRIVERS,
    served.CSI_NODES,
    served.CSI_STORAGE_CAPACITIES,
    served.VOLUME_ATTRIBUTES_CLASSES,
    served.PERSISTENT_VOLUMES,
    served.PERSISTENT_VOLUME_CLAIMS,
    served.VOLUME_ATTACHMENTS,
    served.DEVICE_CLASSES,
    served.RESOURCE_SLICES,
    served.RESOURCE_CLAIM_TEMPLATES,
    served.RESOURCE_CLAIMS,
    served.DEVICE_TAINT_RULES,
    served.RESOURCE_QUOTAS,
    LIMIT_RANGES,
    served.SERVICES,
    served.POD_DISRUPTION_BUDGETS,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    served.CRON_JOBS,
    served.JOBS,
    served.DEPLOYMENTS,
    served.REPLICA_SETS,
    served.REPLICATION_CONTROLLERS,
    served.CONTROLLER_REVISIONS,
    served.STATEFUL_SETS,
    served.DAEMON_SETS,
    served.HORIZONTAL_POD_AUTOSCALERS,
    served.WORKLOADS,
    served.POD_GROUPS,
    served.PODS,
)
"""In the order in which they are listed: pods come last, as they refer to all others."""

REQUIRED: Final = (served.NODES, served.PODS)
"""Resources without which a recording is useless."""

_BY_NAME = {resource.group_resource: resource for resource in RECORDED}
_BY_KIND = {(resource.group, resource.kind): resource for resource in RECORDED}


def recorded_resource(name: str) -> Resource[Any] | None:
    """Return the resource of a name such as "deployments.apps", None if it is not recorded."""
    return _BY_NAME.get(name)


def resource_of_kind(api_version: str, kind: str) -> Resource[Any] | None:
    """Return the recorded resource of a kind, in any version of its group."""
    return _BY_KIND.get((api_version.rpartition("/")[0], kind))
