"""Names, ordinals and volume claims of the Pods of a StatefulSet, and the JSON of new ones.

Pure functions. Source: pkg/controller/statefulset/stateful_set_utils.go.
"""

from __future__ import annotations

from functools import lru_cache

from kubeloop.controllers.runtime.pods.pod_template import pod_from_template
from kubeloop.kube.objects.api_types import ControllerRevision, JSONValue, Pod, StatefulSet
from kubeloop.kube.objects.object_fields import replicas_of
from kubeloop.kube.values.integers import parse_integer

POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"
REVISION_LABEL = "controller-revision-hash"
SYNCED_LABELS = (POD_NAME_LABEL, REVISION_LABEL)
"""Labels of a Pod that a sync reads, except those of the selector."""

_MAX_ORDINAL = (1 << 31) - 1


@lru_cache(maxsize=10_000)  # a sync reads the ordinal of each Pod several times
def parent_and_ordinal(pod_name: str) -> tuple[str, int]:
    """Return the name of the StatefulSet and the ordinal in a Pod's name: ("web", 2) for "web-2".

    ("", -1) for the name of another Pod; the ordinal is -1 if it exceeds 32 bits.
    """
    parent, dash, digits = pod_name.rpartition("-")
    if not dash or not digits.isascii() or not digits.isdigit():
        return "", -1
    ordinal = parse_integer(digits)
    return parent, ordinal if ordinal <= _MAX_ORDINAL else -1


def ordinal_of(pod: Pod) -> int:
    """Return the ordinal in the Pod's name, else -1."""
    return parent_and_ordinal(pod.metadata.name)[1]


def is_member(sts: StatefulSet, pod: Pod) -> bool:
    """Return True if the Pod has a name of this StatefulSet."""
    return parent_and_ordinal(pod.metadata.name)[0] == sts.metadata.name


def is_in_range(sts: StatefulSet, ordinal: int) -> bool:
    """Return True if the StatefulSet should have a Pod with this ordinal."""
    return 0 <= ordinal - sts.spec.ordinals.start < replicas_of(sts)


def pod_name(sts: StatefulSet, ordinal: int) -> str:
    return f"{sts.metadata.name}-{ordinal}"


def revision_of(pod: Pod) -> str:
    """Return the name of the Pod's ControllerRevision, "" without one."""
    return pod.metadata.labels.get(REVISION_LABEL, "")


def claim_names(sts: StatefulSet, ordinal: int) -> dict[str, str]:
    """Return the name of each volume claim of a Pod, by the name of its template and volume."""
    templates = (template["metadata"]["name"] for template in sts.spec.volume_claim_templates)
    return {template: f"{template}-{sts.metadata.name}-{ordinal}" for template in templates}


def claims_of(sts: StatefulSet, ordinal: int) -> dict[str, dict[str, JSONValue]]:
    """Return the JSON of the volume claims of a Pod, by name. They have the labels that the selector requires."""
    names = claim_names(sts, ordinal)
    selector_labels = sts.spec.selector.match_labels if sts.spec.selector is not None else {}
    claims: dict[str, dict[str, JSONValue]] = {}
    for template in sts.spec.volume_claim_templates:
        metadata = template["metadata"]
        name = names[metadata["name"]]
        labels = {**metadata.get("labels", {}), **selector_labels}
        claims[name] = {
            **template,
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {**metadata, "name": name, "namespace": sts.metadata.namespace, "labels": labels},
        }
    return claims


def identity_labels(sts: StatefulSet, ordinal: int) -> dict[str, str]:
    return {POD_NAME_LABEL: pod_name(sts, ordinal), POD_INDEX_LABEL: str(ordinal)}


def identity_matches(sts: StatefulSet, pod: Pod) -> bool:
    """Return True if the Pod has the name and the name label of its ordinal."""
    metadata = pod.metadata
    ordinal = ordinal_of(pod)
    return ordinal >= 0 and metadata.name == pod_name(sts, ordinal) == metadata.labels.get(POD_NAME_LABEL)


def claim_volumes(sts: StatefulSet, ordinal: int) -> list[dict[str, JSONValue]]:
    """Return the volumes of a Pod that refer to its claims."""
    return [
        {"name": volume, "persistentVolumeClaim": {"claimName": claim}}
        for volume, claim in claim_names(sts, ordinal).items()
    ]


def storage_matches(sts: StatefulSet, pod: Pod) -> bool:
    """Return True if the Pod has a volume for each of its claims."""
    if not sts.spec.volume_claim_templates:
        return True
    used = {
        volume.name: volume.persistent_volume_claim.claim_name
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim is not None
    }
    return claim_names(sts, ordinal_of(pod)).items() <= used.items()


def revision_template(sts: StatefulSet, revision: ControllerRevision) -> dict[str, JSONValue]:
    """Return the Pod template of a revision; that of the StatefulSet if the revision has none."""
    stored = ((revision.data or {}).get("spec") or {}).get("template")
    if stored is None:
        return sts.spec.template
    return {name: value for name, value in stored.items() if name != "$patch"}


def stateful_pod(sts: StatefulSet, revision: ControllerRevision, ordinal: int) -> dict[str, JSONValue]:
    """Return the JSON of the Pod with this ordinal and revision, with its name, host name, labels and claims."""
    body = pod_from_template(sts, revision_template(sts, revision))
    name, spec = pod_name(sts, ordinal), body["spec"]
    labels = {
        **body["metadata"].get("labels", {}),
        **identity_labels(sts, ordinal),
        REVISION_LABEL: revision.metadata.name,
    }
    claimed = claim_volumes(sts, ordinal)
    claimed_names = {volume["name"] for volume in claimed}
    volumes = claimed + [volume for volume in spec.get("volumes") or () if volume["name"] not in claimed_names]
    identity: dict[str, JSONValue] = {"hostname": name}
    if sts.spec.service_name:
        identity["subdomain"] = sts.spec.service_name
    if volumes:
        identity["volumes"] = volumes
    return {
        **body,
        "metadata": {**body["metadata"], "name": name, "labels": labels},
        "spec": {**spec, **identity},
    }
