"""Resources that the API server serves, for controllers that meet objects of any kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kubeloop.controllers.runtime.resources.rediscovery import REFRESH_SECONDS
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.client.discovery import ResourceMap
from kubeloop.kube.objects.resources import Resource


class ServedResources:
    """Discovers the resources when one is looked up, again after 30 seconds, and at once for one that is unknown."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._served: ResourceMap | None = None
        self._expires_at = 0.0  # loop time

    async def find(self, lookup: Callable[[ResourceMap], Resource[Any] | None]) -> Resource[Any] | None:
        """Return what `lookup` returns. Raises what `ApiClient.raw` raises."""
        now = asyncio.get_running_loop().time()
        if self._served is not None and now < self._expires_at:
            resource = lookup(self._served)
            if resource is not None:
                return resource
        self._served = await ResourceMap.discover(self._client)
        self._expires_at = now + REFRESH_SECONDS
        return lookup(self._served)
