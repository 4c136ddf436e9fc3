"""ImageLocality: prefers nodes that have the pod's images; large images, and images on many nodes, count more.

Source: plugins/imagelocality of v1.36.
"""

from __future__ import annotations

import numpy as np

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import MAX_NODE_SCORE
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import select_rows
from kubeloop.scheduler.cache.arrays import Rows, Scores
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.config.plugin_args import NoArgs

_MIN_BYTES = 23 << 20  # smaller images score 0: their pull time does not matter
_MAX_BYTES_PER_CONTAINER = 1000 << 20


class ImageLocality:
    name = "ImageLocality"
    row_local = True

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._handle = handle

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        images = _images(pod.pod)
        all_nodes = len(self._handle.snapshot)
        sum_bytes = 0
        for name in images:
            image = node.image_states.get(name)
            if image is not None:
                sum_bytes += int(float(image.size) * (float(image.num_nodes) / float(all_nodes)))
        return _score(sum_bytes, _containers(pod.pod))

    def score_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        images = _images(pod.pod)
        if all(snapshot.columns.image(name).on_no_node for name in images):
            return np.zeros(len(rows), np.int64)
        sum_bytes = np.zeros(len(rows), np.int64)  # [K]
        for name in images:
            image = snapshot.columns.image(name)
            if image.on_no_node:
                continue
            node_share = select_rows(image.num_nodes, rows, snapshot) / float(len(snapshot))
            # truncated per image, as in Go
            sum_bytes += (select_rows(image.sizes, rows, snapshot) * node_share).astype(np.int64)
        max_bytes = _MAX_BYTES_PER_CONTAINER * _containers(pod.pod)
        return MAX_NODE_SCORE * (np.clip(sum_bytes, _MIN_BYTES, max_bytes) - _MIN_BYTES) // (max_bytes - _MIN_BYTES)


def _score(sum_bytes: int, containers: int) -> int:
    max_bytes = _MAX_BYTES_PER_CONTAINER * containers
    return MAX_NODE_SCORE * (min(max(sum_bytes, _MIN_BYTES), max_bytes) - _MIN_BYTES) // (max_bytes - _MIN_BYTES)


def _containers(pod: Pod) -> int:
    return len(pod.spec.init_containers) + len(pod.spec.containers)


def _images(pod: Pod) -> list[str]:
    """Return the names of the images of all containers and image volumes, with ":latest" if the tag is missing."""
    spec = pod.spec
    names = [container.image for container in (*spec.init_containers, *spec.containers)]
    names += [volume.image.get("reference", "") for volume in spec.volumes if volume.image is not None]
    return [name if name.rfind(":") > name.rfind("/") else f"{name}:latest" for name in names]
