"""NodePreferAvoidPods of older schedulers, per node.

Source: v1.20, pkg/scheduler/framework/plugins/nodepreferavoidpods.
"""

from __future__ import annotations

import msgspec

from kubeloop.kube.objects.object_fields import controller_of
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import MAX_NODE_SCORE
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.config.plugin_args import NoArgs

_AVOID = "scheduler.alpha.kubernetes.io/preferAvoidPods"


class NodePreferAvoidPods:
    """Scores 0 for nodes whose preferAvoidPods annotation lists the pod's controller, 100 for all others."""

    name = "NodePreferAvoidPods"

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        pass

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        owner = controller_of(pod.pod.metadata)
        annotation = node.node.metadata.annotations.get(_AVOID) if node.node is not None else None
        if owner is None or owner.kind not in ("ReplicationController", "ReplicaSet") or annotation is None:
            return MAX_NODE_SCORE
        try:
            entries = msgspec.json.decode(annotation)["preferAvoidPods"]
            controllers = [(avoided_pods["podSignature"].get("podController") or {}) for avoided_pods in entries]
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError):  # a malformed annotation is ignored
            return MAX_NODE_SCORE
        avoids = any(
            controller.get("kind") == owner.kind and controller.get("uid") == owner.uid for controller in controllers
        )
        return 0 if avoids else MAX_NODE_SCORE
