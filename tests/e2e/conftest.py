"""Fixtures of the end-to-end tests; what drives the processes is `support.processes.cli_processes`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from support.processes.browser import BrowserUnavailable, running_browser
from support.processes.cli_processes import WEB, Kubectl, Kubeloop, KubeloopProcess, running_cluster

if TYPE_CHECKING:
    from playwright.async_api import Browser


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    """A headless Chromium for the tests of a module, which run on one event loop."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            running = await stack.enter_async_context(running_browser())
        except BrowserUnavailable as error:
            pytest.skip(str(error))
        yield running


@pytest.fixture
def kubeloop(tmp_path) -> Kubeloop:
    return Kubeloop(tmp_path)


@pytest.fixture(scope="module")
def web(tmp_path_factory) -> Iterator[tuple[Kubeloop, KubeloopProcess, Kubectl]]:
    """One development cluster with the web example, shared by the tests of a module; its containers stop fast."""
    folder = tmp_path_factory.mktemp("web")
    kubeloop = Kubeloop(folder)
    with running_cluster(kubeloop, folder, "-f", WEB, "--stop-delay=100ms") as (up, kubectl):
        yield kubeloop, up, kubectl
