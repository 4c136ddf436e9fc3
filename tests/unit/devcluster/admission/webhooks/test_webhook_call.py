"""Calls of a webhook: the time limit of a request."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.devcluster.admission.webhooks.webhook_call import request_deadline
from support.apiserver.request_contexts import request_context


@pytest.mark.parametrize(("query", "seconds"), [("", 60.0), ("?timeout=0s", 60.0), ("?timeout=1500ms", 1.5)])
async def test_deadline_is_that_of_the_request(query: str, seconds: float):
    context = request_context("POST", f"/api/v1/namespaces/default/configmaps{query}")
    left = request_deadline(context) - asyncio.get_running_loop().time()
    assert seconds - 0.5 < left <= seconds
