"""Plugins for pod groups: GangScheduling, TopologyPlacementGenerator, PodGroupPodsCount.

Configurations may enable them as in kube-scheduler, but no pod belongs to a group, as the feature gates GenericWorkload
and GangScheduling are disabled: they have nothing to do.
"""

from __future__ import annotations

from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.config.plugin_args import NoArgs


class _PodGroupPlugin:
    name = ""
    no_op_points: tuple[str, ...] = ()

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        pass


class GangScheduling(_PodGroupPlugin):
    name = "GangScheduling"
    no_op_points = ("preEnqueue", "permit")


class TopologyPlacementGenerator(_PodGroupPlugin):
    name = "TopologyPlacementGenerator"
    no_op_points = ("placementGenerate",)


class PodGroupPodsCount(_PodGroupPlugin):
    name = "PodGroupPodsCount"
    no_op_points = ("placementScore",)
