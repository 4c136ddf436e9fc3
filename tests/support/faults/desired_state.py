"""The final state that every scenario must reach: what users requested, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from kubeloop.kube.objects.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    STATEFUL_SETS,
)
from kubeloop.testing.faults.fault_plan import FaultPlan, completions_are_exact
from support.faults.cluster import Cluster
from support.faults.objects import (
    JSON,
    controller_of,
    image_of,
    is_active,
    is_finished,
    is_ready,
    is_terminating,
    is_true,
    matches,
    name_of,
    uid_of,
)


def missing(cluster: Cluster, plan: FaultPlan, *, orphans: bool = False, stalls: bool = False) -> list[str]:
    """Return what differs from the desired state; [] if it is reached.

    orphans: they are no garbage. stalls: rollouts need not complete, nor pods become ready.
    """
    unchecked = {*([_garbage] if orphans else ()), *([_deployments, _pods] if stalls else ())}
    checks = [check for check in _CHECKS if check not in unchecked]
    if completions_are_exact(plan):
        checks.append(_completions)
    return [problem for check in checks for problem in check(cluster)]


def _observed(obj: JSON) -> bool:
    return bool(obj.get("status", {}).get("observedGeneration", 0) == obj["metadata"]["generation"])


def _deployments(cluster: Cluster) -> Iterator[str]:
    for deployment in cluster.all(DEPLOYMENTS):
        name, spec, status = name_of(deployment), deployment["spec"], deployment.get("status", {})
        replicas = spec["replicas"]
        replica_sets = cluster.owned(REPLICA_SETS, deployment)
        pods = [pod for rs in replica_sets for pod in cluster.owned(PODS, rs) if is_active(pod)]
        if not _observed(deployment):
            yield f"Deployment {name} is not observed"
        if spec.get("paused"):
            continue
        if Counter(map(image_of, pods)) != Counter({image_of(spec["template"]): replicas} if replicas else {}):
            yield f"Deployment {name} has pods {dict(Counter(map(image_of, pods)))} instead of {replicas}"
        counts = {
            count: status.get(count, 0)
            for count in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        }
        if set(counts.values()) != {replicas}:
            yield f"Deployment {name} of {replicas} has status {counts}"
        if replicas and not is_true(deployment, "Available"):
            yield f"Deployment {name} is not Available"


def _replica_sets(cluster: Cluster) -> Iterator[str]:
    for rs in cluster.all(REPLICA_SETS):
        active = sum(map(is_active, cluster.owned(PODS, rs)))
        status = rs.get("status", {})
        if active != rs["spec"]["replicas"] or status.get("replicas", 0) != active or not _observed(rs):
            yield f"ReplicaSet {name_of(rs)} has {active} pods of {rs['spec']['replicas']}, and status {status}"


def _stateful_sets(cluster: Cluster) -> Iterator[str]:
    for sts in cluster.all(STATEFUL_SETS):
        name, replicas, status = name_of(sts), sts["spec"]["replicas"], sts.get("status", {})
        pods = cluster.owned(PODS, sts)
        if {name_of(pod) for pod in pods} != {f"{name}-{ordinal}" for ordinal in range(replicas)}:
            yield f"StatefulSet {name} has pods {[*map(name_of, pods)]} of {replicas}"
        partition = sts["spec"]["updateStrategy"].get("rollingUpdate", {}).get("partition", 0)
        updated = [pod for pod in pods if int(name_of(pod).rpartition("-")[2]) >= partition]
        if any(image_of(pod) != image_of(sts["spec"]["template"]) for pod in updated):
            yield f"StatefulSet {name} has pods of another revision"
        counts = {count: status.get(count, 0) for count in ("replicas", "readyReplicas", "availableReplicas")}
        if set(counts.values()) != {replicas} or not _observed(sts):
            yield f"StatefulSet {name} of {replicas} has status {counts}"
        if not partition and status.get("currentRevision") != status.get("updateRevision"):
            yield f"StatefulSet {name} has revision {status.get('currentRevision')}, not {status.get('updateRevision')}"


def _daemon_sets(cluster: Cluster) -> Iterator[str]:
    for ds in cluster.all(DAEMON_SETS):
        selector = ds["spec"]["template"]["spec"].get("nodeSelector", {})
        nodes = [
            name_of(node) for node in cluster.all(NODES) if matches(selector, node) and not node["spec"].get("taints")
        ]
        name, status = name_of(ds), ds.get("status", {})
        pods = cluster.owned(PODS, ds)
        if Counter(pod["spec"].get("nodeName", "") for pod in pods) != Counter(nodes):
            yield f"DaemonSet {name} has pods on {[pod['spec'].get('nodeName') for pod in pods]} of {nodes}"
        if any(image_of(pod) != image_of(ds["spec"]["template"]) for pod in pods):
            yield f"DaemonSet {name} has pods of another revision"
        fields = (
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "numberReady",
            "updatedNumberScheduled",
            "numberAvailable",
        )
        if {status.get(field, 0) for field in fields} != {len(nodes)} or not _observed(ds):
            yield f"DaemonSet {name} on {len(nodes)} nodes has status {status}"


def _jobs(cluster: Cluster) -> Iterator[str]:
    for job in cluster.all(JOBS):
        name, spec, status = name_of(job), job["spec"], job.get("status", {})
        finished = is_true(job, "Complete") or is_true(job, "Failed")
        if not finished and not spec.get("suspend"):
            yield f"Job {name} is not finished: {status}"
        if status.get("uncountedTerminatedPods") not in (None, {}):
            yield f"Job {name} has uncounted pods"
        pods = cluster.owned(PODS, job)
        # as in v1.36, a pod that is created after the end of its Job is released at the next resync only
        held = [name_of(pod) for pod in pods if _FINALIZER in pod["metadata"].get("finalizers", ())]
        early = {name_of(pod) for pod in pods if pod["metadata"]["creationTimestamp"] <= _end_of(job)}
        if finished and early & {*held}:
            yield f"pods {held} of Job {name} have finalizers"
        if status.get("active", 0) != sum(map(is_active, pods)):
            yield f"Job {name} has {status.get('active', 0)} active pods in its status, but {sum(map(is_active, pods))}"
        if is_true(job, "Complete") and status.get("succeeded", 0) < spec["completions"]:
            yield f"Job {name} has succeeded {status.get('succeeded', 0)} times instead of {spec['completions']}"


def _completions(cluster: Cluster) -> Iterator[str]:
    for job in cluster.all(JOBS):
        succeeded, completions = job.get("status", {}).get("succeeded", 0), job["spec"]["completions"]
        if succeeded > completions:
            yield f"Job {name_of(job)} has succeeded {succeeded} times instead of {completions}"


_FINALIZER = "batch.kubernetes.io/job-tracking"


def _end_of(job: JSON) -> str:
    """Return when a Job has finished; "" if it has not."""
    conditions = job.get("status", {}).get("conditions", ())
    return max((str(c["lastTransitionTime"]) for c in conditions if c["type"] in ("Complete", "Failed")), default="")


def _pods(cluster: Cluster) -> Iterator[str]:
    nodes = {name_of(node) for node in cluster.all(NODES)}
    for pod in cluster.all(PODS):
        node = pod["spec"].get("nodeName", "")
        if is_terminating(pod):
            yield f"Pod {name_of(pod)} is terminating"
        elif is_finished(pod):
            continue
        elif (
            not node
            and not pod["spec"].get("schedulingGates")
            and "unschedulable" not in pod["metadata"].get("labels", {})
            and not cluster.lacks_claim(pod)
        ):
            yield f"Pod {name_of(pod)} is not bound"
        elif node and node not in nodes:
            yield f"Pod {name_of(pod)} is on node {node}, which does not exist"
        elif node and not is_ready(pod):
            yield f"Pod {name_of(pod)} is not ready"


def _garbage(cluster: Cluster) -> Iterator[str]:
    """Controlled objects whose controller does not exist, and namespaces in deletion."""
    uids = {
        uid_of(owner)
        for resource in (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS, JOBS)
        for owner in cluster.all(resource)
    }
    for resource in (REPLICA_SETS, PODS):
        for obj in cluster.all(resource):
            owner = controller_of(obj)
            if (
                owner
                and owner["kind"] in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")
                and owner["uid"] not in uids
            ):
                yield f"{obj['kind']} {name_of(obj)} has lost its owner {owner['name']}"
    for namespace in cluster.all(NAMESPACES):
        if is_terminating(namespace):
            yield f"Namespace {name_of(namespace)} is terminating"


def _quotas(cluster: Cluster) -> Iterator[str]:
    for quota in cluster.all(RESOURCE_QUOTAS):
        if quota.get("status", {}).get("hard") != quota["spec"]["hard"]:
            yield f"ResourceQuota {name_of(quota)} is not observed"


def _volumes(cluster: Cluster) -> Iterator[str]:
    volumes = {name_of(volume): volume for volume in cluster.all(PERSISTENT_VOLUMES)}
    users = {
        volume["persistentVolumeClaim"]["claimName"]
        for pod in cluster.all(PODS, is_active)
        for volume in pod["spec"].get("volumes", ())
        if "persistentVolumeClaim" in volume
    }
    for claim in cluster.all(PERSISTENT_VOLUME_CLAIMS):
        bound = volumes.get(claim["spec"].get("volumeName", ""), {})
        if is_terminating(claim):
            yield f"PersistentVolumeClaim {name_of(claim)} is terminating"
        elif bound and bound["spec"].get("claimRef", {}).get("uid") != uid_of(claim):
            yield f"PersistentVolumeClaim {name_of(claim)} is bound to a volume of another claim"
        elif (claim.get("status", {}).get("phase") != "Bound" or not bound) and name_of(claim) in users:
            yield f"PersistentVolumeClaim {name_of(claim)} is not bound"


_CHECKS: tuple[Callable[[Cluster], Iterator[str]], ...] = (
    _deployments, _replica_sets, _stateful_sets, _daemon_sets, _jobs, _pods, _garbage, _volumes, _quotas,
)  # fmt: skip
