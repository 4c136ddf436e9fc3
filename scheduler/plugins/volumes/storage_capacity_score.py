"""Score of a node by the storage capacity that a pod's volumes use: the feature gate StorageCapacityScoring.

Source: plugins/volumebinding/{scorer,volume_binding}.go of v1.36.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from kubeloop.kube.objects.api_types import Node
from kubeloop.kube.objects.storage_types import PersistentVolumeClaim
from kubeloop.kube.values.quantities import value
from kubeloop.scheduler.config.plugin_args import UtilizationShapePoint
from kubeloop.scheduler.plugins.node_resources.scoring import MAX_UTILIZATION, score_by_percent
from kubeloop.scheduler.plugins.volumes.volume_binder import PodVolumes, VolumeBinder
from kubeloop.scheduler.plugins.volumes.volume_claims import claim_class

ClassAmounts = dict[str, tuple[int, int]]
"""StorageClass -> (requested bytes, bytes of capacity)."""


class StorageCapacityScorer:
    def __init__(self, shape: Iterable[UtilizationShapePoint]) -> None:
        self._score_by_percent = score_by_percent(shape)

    def score(self, amounts: ClassAmounts) -> int:
        """Return the mean of the scores of the classes; 0 if there is none."""
        scores = [self._class_score(requested, capacity) for requested, capacity in amounts.values()]
        return math.floor(sum(scores) / len(scores) + 0.5) if scores else 0  # Go rounds halves away from zero

    def _class_score(self, requested: int, capacity: int) -> int:
        full = capacity == 0 or requested > capacity
        return self._score_by_percent[MAX_UTILIZATION if full else requested * MAX_UTILIZATION // capacity]


def class_amounts(pod_volumes: PodVolumes, binder: VolumeBinder, node: Node) -> ClassAmounts:
    """Return the amounts of volumes to bind; without any, those of volumes to provision on this node.

    Raises ClaimError.
    """
    amounts: ClassAmounts = {}
    for volume, claim in pod_volumes.static_bindings:
        name = volume.spec.storage_class_name
        requested, capacity = amounts.get(name, (0, 0))
        amounts[name] = requested + _requested_bytes(claim), capacity + value(volume.spec.capacity.get("storage", 0))
    if amounts:
        return amounts
    for claim in pod_volumes.dynamic_provisions:
        node_capacity = binder.node_capacity(claim, node)
        if node_capacity is not None:
            name = claim_class(claim)
            requested, _ = amounts.get(name, (0, 0))
            # the capacity is that of the whole class: several claims of one class share it
            amounts[name] = requested + _requested_bytes(claim), value(node_capacity.capacity or 0)
    return amounts


def _requested_bytes(claim: PersistentVolumeClaim) -> int:
    return value(claim.spec.resources.requests.get("storage", 0))
