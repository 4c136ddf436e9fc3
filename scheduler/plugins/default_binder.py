"""DefaultBinder: binds the pod by POST to pods/binding. Source: plugins/defaultbinder of v1.36."""

from __future__ import annotations

import logging

from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.api.results import failed
from kubeloop.scheduler.api.status import Status
from kubeloop.scheduler.api_calls.api_dispatcher import post_binding
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config.plugin_args import NoArgs

log = logging.getLogger(__name__)


class DefaultBinder:
    name = "DefaultBinder"

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._handle = handle

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """POST the binding. An error does not mean that the pod is unbound; it is retried and the API server decides.

        Cancellation: the request may have been sent; the informer then shows the result.
        """
        metadata = pod.pod.metadata
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
            "target": {"kind": "Node", "name": node_name},
        }
        try:
            if self._handle.api_cacher is not None:
                await self._handle.api_cacher.bind_pod(binding)
            else:
                await post_binding(self._handle.client, binding)
        except (ApiError, ServerUnreachable) as error:
            log.info("binding failed", extra={"pod": pod.key, "node": node_name, "error": str(error)})
            return failed(self.name, error)
        return None
