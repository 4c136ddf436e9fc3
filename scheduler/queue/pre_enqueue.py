"""PreEnqueue: plugins that keep a pod out of the active queue. Source: runPreEnqueuePlugins of v1.36."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api.extension_points import PreEnqueuePlugin
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.api.status import Code
from kubeloop.scheduler.queue.queueing_hints import QueueingHintMap

log = logging.getLogger(__name__)


class PreEnqueue:
    """plugins, hint_maps: by scheduler name. plugin_failed: as in QueueObserver."""

    def __init__(
        self,
        plugins: Mapping[str, Sequence[PreEnqueuePlugin]],
        hint_maps: Mapping[str, QueueingHintMap],
        plugin_failed: Callable[[Pod, str], None],
    ) -> None:
        self._plugins = plugins
        self._hint_maps = hint_maps
        self._plugin_failed = plugin_failed

    def run(self, queued: QueuedPodInfo) -> None:
        """Set or clear the gating plugin. The plugin that gated the pod last is called first."""
        plugins = self._plugins.get(queued.pod.spec.scheduler_name, ())
        gated_by = queued.gating_plugin
        if gated_by:
            plugins = sorted(plugins, key=lambda plugin: plugin.name != gated_by)
        for plugin in plugins:
            try:
                status = plugin.pre_enqueue(queued.pod)
                if status is None or status.code is Code.SUCCESS:
                    continue
            except Exception as error:  # the pod stays gated; the next event or flush runs the plugin again
                log.exception("PreEnqueue failed", extra={"plugin": plugin.name, "pod": queued.key})
                self._plugin_failed(queued.pod, f'running PreEnqueue plugin "{plugin.name}": {error}')
            queued.unschedulable_plugins.add(plugin.name)
            queued.gating_plugin = plugin.name
            hint_map = self._hint_maps.get(queued.pod.spec.scheduler_name)
            queued.gating_events = hint_map.events_of(plugin.name) if hint_map is not None else ()
            return
        queued.gating_plugin = ""
        queued.gating_events = ()
