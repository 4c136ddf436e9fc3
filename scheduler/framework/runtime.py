"""The framework runtime: the plugins of one profile, and the extension points that run them.

A plugin that raises fails the attempt of that pod, with the plugin's name in the event, never the scheduler.
Source: pkg/scheduler/framework/runtime of v1.36.
"""

from __future__ import annotations

from typing import cast

from kubeloop.scheduler.api.extension_points import Plugin, PreEnqueuePlugin, QueueSortPlugin
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.config.types import EXTENSION_POINTS, Profile
from kubeloop.scheduler.framework.class_cache import ClassCache
from kubeloop.scheduler.framework.node_filters import NodeFilters
from kubeloop.scheduler.framework.points.binding_points import BindingPoints
from kubeloop.scheduler.framework.points.filter_points import FilterPoints
from kubeloop.scheduler.framework.points.placement_points import PlacementPoints
from kubeloop.scheduler.framework.points.reserve_points import ReservePoints
from kubeloop.scheduler.framework.points.score_points import ScorePoints
from kubeloop.scheduler.framework.profile_plugins import (
    Registry,
    check_points,
    create_plugin,
    implements,
    plugins_at,
)
from kubeloop.scheduler.framework.timing import TimedPreEnqueue, Timing
from kubeloop.scheduler.framework.waiting_pods import WaitingPods
from kubeloop.scheduler.queue.nominator import Nominator

_REJECTING_POINTS = ("preEnqueue", "preFilter", "filter", "postFilter", "reserve", "permit")


class Framework:
    """The plugins of one profile at their extension points.

    plugins: by name. pre_enqueue, queue_sort: called by the scheduling queue. filters, scores, reserve: the extension
    points of the scheduling cycle. placements: those of the cycle of a pod group. binding: those of the binding cycle.
    node_filters: the filters on a single node, for
    dry runs. event_plugins: the plugins that can reject a pod; their events make it schedulable again.
    """

    def __init__(
        self,
        profile: Profile,
        handle: Handle,
        registry: Registry,
        nominator: Nominator,
        waiting_pods: WaitingPods,
        *,
        class_cache: bool = True,
    ) -> None:
        """Create the plugins. Raises UserError with kube-scheduler's message for an invalid profile."""
        self.profile_name = profile.scheduler_name
        self.percentage_of_nodes_to_score = profile.percentage_of_nodes_to_score
        self.timing = timing = Timing(handle.metrics, profile.scheduler_name, handle.clock.time_ns)
        self.plugins: dict[str, Plugin] = {}
        for ref in profile.enabled():
            if ref.name not in self.plugins:
                self.plugins[ref.name] = create_plugin(ref.name, profile.args.get(ref.name), handle, registry)
        refs = {point: plugins_at(point, profile, self.plugins) for point in EXTENSION_POINTS}
        check_points(profile, refs)
        points = {
            point: [self.plugins[ref.name] for ref in chosen if implements(self.plugins[ref.name], point)]
            for point, chosen in refs.items()
        }
        rejecting = {id(plugin) for point in _REJECTING_POINTS for plugin in points[point]}
        self.event_plugins = [plugin for plugin in self.plugins.values() if id(plugin) in rejecting]
        pre_enqueue = cast("list[PreEnqueuePlugin]", points["preEnqueue"])
        self.pre_enqueue: list[PreEnqueuePlugin] = [TimedPreEnqueue(plugin, timing) for plugin in pre_enqueue]
        self.queue_sort = cast("QueueSortPlugin", points["queueSort"][0])
        cache = ClassCache() if class_cache and not profile.check_all_filters else None
        self.node_filters = NodeFilters(timing, points["filter"], points["preFilter"], nominator)
        self.filters = FilterPoints(
            timing, points, self.node_filters, nominator, cache, check_all_filters=profile.check_all_filters
        )
        weights = {
            point: {self.plugins[ref.name].name: ref.weight or 1 for ref in refs[point]}
            for point in ("score", "placementScore")
        }
        self.scores = ScorePoints(timing, points, weights["score"], cache)
        self.placements = PlacementPoints(timing, points, weights["placementScore"])
        self.reserve = ReservePoints(timing, points, waiting_pods)
        self.binding = BindingPoints(timing, points)
