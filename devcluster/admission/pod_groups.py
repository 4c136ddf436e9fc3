"""PodGroupWorkloadExists and JobValidation: references between PodGroups, their Workloads and Jobs.

Source: plugin/pkg/admission/podgroup and plugin/pkg/admission/job of Kubernetes v1.36.
"""

from __future__ import annotations

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.served_resources import JOBS
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import POD_GROUPS, WORKLOADS


def check_template_exists(store: ObjectStore, pod_group: JSON) -> None:
    """Raise StatusError 403 if the template that a new PodGroup refers to does not exist."""
    reference = (pod_group["spec"].get("podGroupTemplateRef") or {}).get("workload")
    if reference is None:
        return
    metadata, workload_name = pod_group["metadata"], reference["workloadName"]
    workload = store.get(WORKLOADS, metadata["namespace"], workload_name)
    if workload is None:
        problem = f'Workload "{workload_name}" not found'
    elif "deletionTimestamp" in workload["metadata"]:
        problem = f'Workload "{workload_name}" is being deleted'
    elif any(
        template["name"] == reference["podGroupTemplateName"] for template in workload["spec"]["podGroupTemplates"]
    ):
        return
    else:
        template_name = reference["podGroupTemplateName"]
        problem = f'PodGroupTemplate "{template_name}" not found in Workload "{workload_name}"'
    raise errors.forbidden(POD_GROUPS, errors.name_in_message(pod_group), f"PodGroup rejected: {problem}")


def check_gang_parallelism(store: ObjectStore, job: JSON, old: JSON) -> None:
    """Raise StatusError 403 if the parallelism of a Job changes whose pods are scheduled as a gang."""
    if job["spec"].get("parallelism") == old["spec"].get("parallelism"):
        return
    metadata = old["metadata"]
    group_name = (old["spec"]["template"]["spec"].get("schedulingGroup") or {}).get("podGroupName")
    if group_name is not None:
        referenced = store.get(POD_GROUPS, metadata["namespace"], group_name)
        pod_groups = [] if referenced is None else [referenced]
    else:
        pod_groups = [
            pod_group
            for pod_group in store.list(POD_GROUPS, metadata["namespace"])
            if _is_controlled_by(pod_group, metadata["uid"])
        ]
    for pod_group in pod_groups:
        if "gang" in pod_group["spec"]["schedulingPolicy"]:
            name = pod_group["metadata"]["name"]
            message = f'cannot change parallelism for a Job referencing gang-scheduled PodGroup "{name}"'
            raise errors.forbidden(JOBS, metadata["name"], message)


def _is_controlled_by(obj: JSON, uid: str) -> bool:
    owners = obj["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner["uid"] == uid for owner in owners)
