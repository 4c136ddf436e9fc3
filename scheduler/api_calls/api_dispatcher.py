"""API calls about pods that scheduling does not wait for: the feature gate SchedulerAsyncAPICalls.

At most one call per pod is in progress. Status patches of a pod are merged, and dropped when the pod has that status
already; a binding makes pending status patches obsolete, and those that are requested while it is in progress. Source:
backend/api_dispatcher, backend/api_cache and framework/api_calls of v1.36.
"""

from __future__ import annotations

from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import PODS
from kubeloop.scheduler.api_calls.background_calls import BackgroundCalls
from kubeloop.scheduler.api_calls.status_patches import StatusPatches


async def post_binding(client: ApiClient, binding: JSON) -> None:
    """POST a Binding. Raises ApiError, ServerUnreachable."""
    metadata = binding["metadata"]
    await client.create_raw(PODS, binding, metadata["namespace"], name=metadata["name"], subresource="binding")


class ApiDispatcher:
    """Implements api.handle.ApiCacher.

    A binding is sent by the task that requests it, as there is nothing to wait for but a status patch of the same pod.
    """

    def __init__(self, client: ApiClient, patches: StatusPatches, calls: BackgroundCalls) -> None:
        self._client = client
        self._patches = patches
        self._calls = calls
        self._pending_bindings = 0

    def patch_pod_status(
        self, pod: Pod, *, reason: str = "", message: str = "", nominated_node_name: str | None = None
    ) -> None:
        self._patches.set(pod, reason=reason, message=message, nominated_node_name=nominated_node_name)

    async def bind_pod(self, binding: JSON) -> None:
        uid = binding["metadata"]["uid"]
        with self._patches.superseded(uid):
            self._count_pending(1)
            try:
                await self._patches.settle(uid)
            finally:
                self._count_pending(-1)
            with self._calls.sending("pod_binding"):
                await post_binding(self._client, binding)

    def _count_pending(self, change: int) -> None:
        self._pending_bindings += change
        self._calls.pending("pod_binding", self._pending_bindings)
