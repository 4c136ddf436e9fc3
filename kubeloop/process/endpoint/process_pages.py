"""All pages of a process that runs controllers and scheduler."""

from __future__ import annotations

import asyncio
import importlib
from functools import partial
from typing import TYPE_CHECKING

from kubeloop.process.endpoint.server import EndpointServer

if TYPE_CHECKING:
    from kubeloop.process.control_plane.control_plane import ControlPlane


def add_process_pages(endpoint: EndpointServer, plane: ControlPlane) -> None:
    """Add the readiness check and, when the first page is requested, those of `plane`: their modules take 0.7 MiB."""
    endpoint.add_readiness_check("informer-sync", lambda: None if plane.synced.is_set() else "caches are not filled")
    endpoint.add_pages_when_requested(partial(_add_pages, endpoint, plane))


async def _add_pages(endpoint: EndpointServer, plane: ControlPlane) -> None:
    pages = await asyncio.to_thread(importlib.import_module, "kubeloop.process.endpoint.control_plane_pages")
    pages.add_control_plane_pages(endpoint, plane)
