"""Root CA publisher: writes the certificates of the API server's authority to a ConfigMap in every active namespace.

Source: v1.36 pkg/controller/certificates/rootcacertpublisher/publisher.go.
"""

from __future__ import annotations

from kubeloop.controllers.runtime.controller import EventDrivenController
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.writes.object_patch import versioned_merge_patch
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.errors import ApiError, NotFound, is_namespace_terminating
from kubeloop.kube.objects.api_types import JSONValue, Namespace
from kubeloop.kube.objects.resources import CONFIG_MAPS, NAMESPACES

_NAME = "kube-root-ca.crt"
_DESCRIPTION_ANNOTATION = "kubernetes.io/description"
_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)


class RootCACertificatePublisher(EventDrivenController):
    """Reconciles namespaces, by name; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, "rootcacertpublisher", "root_ca_cert_publisher")
        self._data = {"ca.crt": context.root_ca}
        self._seconds = context.seconds
        documentation = "Number of namespace syncs happened in root ca cert publisher."
        self._syncs = context.metrics.counter("root_ca_cert_publisher_sync_total", documentation, ("code",))
        self._sync_seconds = context.metrics.histogram(
            "root_ca_cert_publisher_sync_duration_seconds",
            documentation,
            ("code",),
            buckets=[0.001 * 2**power for power in range(15)],
        )
        namespaces = context.informers.informer(NAMESPACES)
        config_maps = context.informers.informer(CONFIG_MAPS)
        self._config_maps = config_maps.store
        self._registrations = (
            namespaces.on_events(
                added=lambda namespace: self.queue.add(namespace.key),
                updated=lambda _old, new: self._on_namespace_update(new),
            ),
            config_maps.on_events(updated=lambda _old, new: self._on_config_map(new), deleted=self._on_config_map),
        )

    def _on_namespace_update(self, namespace: Namespace) -> None:
        if namespace.status.phase == "Active":
            self.queue.add(namespace.key)

    def _on_config_map(self, config_map: JSONValue) -> None:
        if config_map["metadata"]["name"] == _NAME:
            self.queue.add(config_map["metadata"]["namespace"])

    async def reconcile(self, namespace: str) -> float | None:
        """Create or correct the ConfigMap of a namespace. An exception means: retry with backoff."""
        started_at, code = self._seconds(), "500"
        try:
            await self._sync(namespace)
            code = "200"
        except ApiError as error:
            code = str(error.status.code or 500)
            raise
        finally:
            self._sync_seconds.labels(code).observe(max(0.0, self._seconds() - started_at))
            self._syncs.labels(code).inc()
        return None

    async def _sync(self, namespace: str) -> None:
        config_map = self._config_maps.get(f"{namespace}/{_NAME}")
        if config_map is None:
            await self._create(namespace)
            return
        metadata = config_map["metadata"]
        annotations = metadata.get("annotations") or {}
        data = config_map.get("data") or {}
        if data == self._data and annotations.get(_DESCRIPTION_ANNOTATION):
            return
        removed = dict.fromkeys(data.keys() - self._data.keys())
        body = versioned_merge_patch(
            metadata["resourceVersion"],
            metadata={"annotations": {_DESCRIPTION_ANNOTATION: _DESCRIPTION}},
            data={**removed, **self._data},
        )
        await self._client.patch(CONFIG_MAPS, _NAME, body, PatchType.MERGE, namespace)

    async def _create(self, namespace: str) -> None:
        body = {
            "apiVersion": CONFIG_MAPS.api_version,
            "kind": CONFIG_MAPS.kind,
            "metadata": {
                "name": _NAME,
                "namespace": namespace,
                "annotations": {_DESCRIPTION_ANNOTATION: _DESCRIPTION},
            },
            "data": self._data,
        }
        try:
            await self._client.create(CONFIG_MAPS, body, namespace)
        except NotFound:
            pass  # the namespace is deleted
        except ApiError as error:
            if not is_namespace_terminating(error):
                raise
