"""The ReplicaSet to create for a Deployment's template, and the annotations of the new ReplicaSet.

Pure functions. Source: getNewReplicaSet of pkg/controller/deployment/sync.go, SetNewReplicaSetAnnotations of
util/deployment_util.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubeloop.controllers.deployment.replica_sets import NOT_COPIED, REVISION, REVISION_HISTORY
from kubeloop.controllers.deployment.rolling_update import new_rs_new_replicas, replicas_annotations
from kubeloop.controllers.runtime.integers import int_or_none
from kubeloop.controllers.runtime.revisions.pod_template_hash import pod_template_hash, with_hash_label
from kubeloop.kube.objects.api_types import Deployment, JSONValue, ReplicaSet, to_json
from kubeloop.kube.objects.object_fields import POD_TEMPLATE_HASH_LABEL, controller_reference
from kubeloop.kube.objects.resources import REPLICA_SETS

MAX_NAME_LENGTH = 253
MAX_REVISION_HISTORY_CHARS = 2000


def new_replica_set(
    deployment: Deployment, old_rss: Sequence[ReplicaSet], revision: str
) -> tuple[str, int, dict[str, JSONValue]]:
    """Return name, size and JSON of the ReplicaSet to create for the Deployment's template.

    Raises InvalidIntOrPercent, UnsupportedStrategy.
    """
    spec = deployment.spec
    template_hash = pod_template_hash(spec.template, deployment.status.collision_count)
    template = with_hash_label(spec.template, template_hash)
    selector = to_json(spec.selector) if spec.selector is not None else {}
    selector["matchLabels"] = {**selector.get("matchLabels", {}), POD_TEMPLATE_HASH_LABEL: template_hash}
    size = new_rs_new_replicas(deployment, old_rss, 0)
    annotations, _ = new_replica_set_annotations(
        deployment.metadata.annotations, {}, revision, replicas=replicas_annotations(deployment)
    )
    name = replica_set_name(deployment.metadata.name, template_hash)
    body: dict[str, JSONValue] = {
        "apiVersion": REPLICA_SETS.api_version,
        "kind": REPLICA_SETS.kind,
        "metadata": {
            "name": name,
            "namespace": deployment.metadata.namespace,
            "labels": template["metadata"]["labels"],
            "annotations": annotations,
            "ownerReferences": [controller_reference(deployment)],
        },
        "spec": {"replicas": size, "selector": selector, "template": template},
    }
    if spec.min_ready_seconds:
        body["spec"]["minReadySeconds"] = spec.min_ready_seconds
    return name, size, body


def replica_set_name(deployment_name: str, template_hash: str) -> str:
    """Return the name of a Deployment's ReplicaSet; a long Deployment name is truncated to leave room for the hash."""
    return f"{deployment_name[: MAX_NAME_LENGTH - 1 - len(template_hash)]}-{template_hash}"


def new_replica_set_annotations(
    deployment_annotations: Mapping[str, str],
    annotations: Mapping[str, str],
    new_revision: str,
    *,
    replicas: Mapping[str, str],
    max_history_chars: int = MAX_REVISION_HISTORY_CHARS,
) -> tuple[dict[str, str], bool]:
    """Return the annotations of the new ReplicaSet, and True if a write is needed.

    Copies the Deployment's annotations and raises the revision; the former revision of a ReplicaSet that is rolled
    back to is added to its revision history. replicas: the size annotations of one that is about to be created.
    """
    result = dict(annotations)
    changed = False
    for name, value in deployment_annotations.items():
        if name not in NOT_COPIED and result.get(name) != value:
            result[name] = value
            changed = True
    old_text = result.get(REVISION)
    old_number = int_or_none(old_text) if old_text else 0
    new_number = int_or_none(new_revision)
    if old_number is None or new_number is None:
        return result, False  # the annotation was edited and is not a number: leave it unchanged
    if old_number < new_number:
        result[REVISION] = new_revision
        changed = True
        if old_text is not None:
            _append_revision_history(result, old_text, max_history_chars)
    for name, value in replicas.items():
        if result.get(name) != value:
            result[name] = value
            changed = True
    return result, changed


def _append_revision_history(annotations: dict[str, str], revision: str, max_chars: int) -> None:
    """Append to the revision history; the oldest revisions are dropped if it becomes too long."""
    history = annotations.get(REVISION_HISTORY, "")
    revisions = history.split(",")
    if not revisions[0]:
        annotations[REVISION_HISTORY] = revision
        return
    length = len(history) + len(revision) + 1
    start = 0
    while length > max_chars and start < len(revisions):
        length -= len(revisions[start]) + 1
        start += 1
    if length <= max_chars:
        annotations[REVISION_HISTORY] = ",".join([*revisions[start:], revision])
