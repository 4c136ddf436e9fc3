"""State of the PersistentVolumeClaims of a pending pod, for `kubeloop explain`: which one is not bound, and why."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from kubeloop.kube.objects.storage_types import PersistentVolumeClaim, is_default_class
from kubeloop.scheduler.api.listers import Listers
from kubeloop.scheduler.plugins.volumes.volume_claims import WAIT_FOR_FIRST_CONSUMER, claim_class, claim_uses

_NO_PROVISIONER = "kubernetes.io/no-provisioner"


class ClaimProblem(NamedTuple):
    """Why a claim keeps the pod from being scheduled, and what would help."""

    problem: str
    advice: str


def claim_problems(pod: Pod, listers: Listers, unknown: Container[str] = ()) -> list[ClaimProblem]:
    """Return the claims of the pod that are missing, lost, or not bound though their class binds at once.

    unknown: resources (as "persistentvolumes") whose objects may be missing here although they exist.
    """
    problems = []
    for use in claim_uses(pod):
        claim = listers.persistent_volume_claims.get(f"{pod.metadata.namespace}/{use.claim_name}")
        if claim is not None:
            problem = _claim_problem(claim, listers, unknown)
        elif PERSISTENT_VOLUME_CLAIMS.group_resource in unknown:
            problem = None
        elif use.ephemeral:
            text = f"the claim {use.claim_name} of an ephemeral volume does not exist yet"
            problem = ClaimProblem(text, "wait until the ephemeral volume controller has created it")
        else:
            problem = ClaimProblem(f"the claim {use.claim_name} does not exist", "create the missing object")
        if problem is not None:
            problems.append(problem)
    return problems


def _claim_problem(claim: PersistentVolumeClaim, listers: Listers, unknown: Container[str]) -> ClaimProblem | None:
    name, volume = claim.metadata.name, claim.spec.volume_name
    if volume:
        if PERSISTENT_VOLUMES.group_resource in unknown or listers.persistent_volumes.get(volume) is not None:
            return None
        text = f"the claim {name} is bound to the volume {volume}, which does not exist"
        return ClaimProblem(text, f"restore the volume {volume}, or create the claim {name} again")
    class_name = claim_class(claim)
    if not class_name:
        return _without_class(claim, listers, unknown)
    storage_class = listers.storage_classes.get(class_name)
    if storage_class is None:
        if STORAGE_CLASSES.group_resource in unknown:
            return None
        text = f"the claim {name} is not bound: there is no StorageClass {class_name}"
        return ClaimProblem(text, f"create the StorageClass {class_name}, or a volume of this class")
    if storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER:
        return None  # bound when the pod has a node: the filter VolumeBinding decides
    if storage_class.provisioner == _NO_PROVISIONER:
        text = f"the claim {name} is not bound: no volume of StorageClass {class_name} fits, and nothing provisions one"
        return ClaimProblem(text, f"create a PersistentVolume of class {class_name} that fits the claim {name}")
    text = f"the claim {name} is not bound: it waits for the provisioner {storage_class.provisioner}"
    return ClaimProblem(f"{text} of StorageClass {class_name}", f"see kubectl describe pvc {name}: does it run?")


def _without_class(claim: PersistentVolumeClaim, listers: Listers, unknown: Container[str]) -> ClaimProblem | None:
    name = claim.metadata.name
    if claim.spec.storage_class_name is not None:  # "" declines the default class
        text = f'the claim {name} is not bound: its storageClassName is "", and no volume without a class fits'
        return ClaimProblem(text, f"create a PersistentVolume without a class that fits the claim {name}")
    if STORAGE_CLASSES.group_resource in unknown:
        return None
    default = next((item for item in listers.storage_classes.list() if is_default_class(item)), None)
    if default is None:
        text = f"the claim {name} is not bound: it names no StorageClass, and there is no default StorageClass"
        names = ", ".join(sorted(item.metadata.name for item in listers.storage_classes.list()))
        help_text = "mark a StorageClass as default" if names else "create a default StorageClass"
        choose = f", or create the claim {name} again with a storageClassName{f' ({names})' if names else ''}"
        return ClaimProblem(text, help_text + choose)
    text = f"the claim {name} is not bound: it has no StorageClass yet, and the default one is {default.metadata.name}"
    return ClaimProblem(text, "does the persistentvolume-binder controller run? It sets the default class")
