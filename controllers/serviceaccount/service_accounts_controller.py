"""Service account controller: creates the ServiceAccount `default` in every active namespace.

Source: v1.36 pkg/controller/serviceaccount/serviceaccounts_controller.go.
"""

from __future__ import annotations

from contextlib import suppress

from kubeloop.controllers.api.controller import Controller, Result
from kubeloop.controllers.api.objects import Request, metadata_of
from kubeloop.controllers.api.predicates import is_deleted
from kubeloop.controllers.api.watches import For, Watches
from kubeloop.kube.errors import AlreadyExists, ApiError, is_namespace_terminating
from kubeloop.kube.objects.resources import NAMESPACES, SERVICE_ACCOUNTS

_NAME = "default"


class ServiceAccountsController(Controller):
    """Reconciles namespaces."""

    name = "serviceaccount"
    watches = (
        For(NAMESPACES),
        Watches(
            SERVICE_ACCOUNTS, lambda account: [Request("", metadata_of(account).namespace)], predicates=[is_deleted]
        ),
    )

    async def reconcile(self, request: Request) -> Result:
        """Create the ServiceAccount of an active namespace if it is missing."""
        namespace = self.cache.get(NAMESPACES, request)
        if namespace is None or namespace.status.phase != "Active":
            return None
        if self.cache.get(SERVICE_ACCOUNTS, _NAME, request.name) is None:
            metadata = {"name": _NAME, "namespace": request.name}
            try:
                with suppress(AlreadyExists):
                    await self.client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
            except ApiError as error:
                if not is_namespace_terminating(error):
                    raise
        return None
