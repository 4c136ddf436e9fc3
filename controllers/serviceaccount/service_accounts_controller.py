"""Service account controller: creates the ServiceAccount `default` in every active namespace.

Source: v1.36 pkg/controller/serviceaccount/serviceaccounts_controller.go.
"""

from __future__ import annotations

from kubeloop.controllers.runtime.controller import EventDrivenController
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.kube.errors import AlreadyExists, ApiError, is_namespace_terminating
from kubeloop.kube.objects.resources import NAMESPACES, SERVICE_ACCOUNTS

_NAME = "default"


class ServiceAccountsController(EventDrivenController):
    """Reconciles namespaces, by name; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, "serviceaccount", "serviceaccount")
        namespaces = context.informers.informer(NAMESPACES)
        accounts = context.informers.informer(SERVICE_ACCOUNTS)
        self._namespaces, self._accounts = namespaces.store, accounts.store
        self._registrations = (
            namespaces.on_latest(lambda namespace: self.queue.add(namespace.key)),
            accounts.on_events(deleted=lambda account: self.queue.add(account["metadata"]["namespace"])),
        )

    async def reconcile(self, name: str) -> float | None:
        """Create the ServiceAccount of an active namespace if it is missing. An exception means: retry with backoff."""
        namespace = self._namespaces.get(name)
        if namespace is None or namespace.status.phase != "Active" or f"{name}/{_NAME}" in self._accounts:
            return None
        body = {
            "apiVersion": SERVICE_ACCOUNTS.api_version,
            "kind": SERVICE_ACCOUNTS.kind,
            "metadata": {"name": _NAME, "namespace": name},
        }
        try:
            await self._client.create(SERVICE_ACCOUNTS, body, name)
        except AlreadyExists:
            pass
        except ApiError as error:
            if not is_namespace_terminating(error):
                raise
        return None
