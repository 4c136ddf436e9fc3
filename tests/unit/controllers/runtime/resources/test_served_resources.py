"""Discovery of resources for controllers of any kind."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.controllers.runtime.resources.served_resources import ServedResources
from support.apiserver.fake_apiserver import WIDGETS

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize(
    ("kind", "waited_seconds", "discoveries"),
    [
        pytest.param("Widget", 29, 1, id="known"),
        pytest.param("Widget", 31, 2, id="known for more than 30 s"),
        pytest.param("Nothing", 0, 2, id="unknown"),
    ],
)
async def test_discovery_is_repeated_after_a_time_and_for_unknown_kinds(
    fake_apiserver, kind, waited_seconds, discoveries
):
    served = ServedResources(fake_apiserver.client)
    for _ in range(2):
        resource = await served.find(lambda resources: resources.find("example.com/v1", kind))
        assert (resource is not None and resource.plural) == (kind == "Widget" and WIDGETS.plural)
        await asyncio.sleep(waited_seconds)
    assert [request.path for request in fake_apiserver.transport.sent] == ["/api", "/apis"] * discoveries
