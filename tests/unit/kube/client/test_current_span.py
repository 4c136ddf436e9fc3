"""Trace context of the running task, in requests and log records."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.kube.client.current_span import current_span, log_traceparent, request_traceparent
from kubeloop.tracing.spans.traceparent import TraceContext

CONTEXT = TraceContext("1" * 32, "2" * 16, True)


@pytest.fixture(autouse=True)
def no_current_span():
    token = current_span.set(None)
    yield
    current_span.reset(token)


def test_task_without_operation_has_no_trace_context():
    assert request_traceparent() == log_traceparent() == ""


async def test_tasks_inherit_the_current_span():
    current_span.set(CONTEXT)
    seen = []

    async def child():
        seen.append(request_traceparent())
        current_span.set(None)

    await asyncio.create_task(child())
    assert seen == [CONTEXT.traceparent] == [request_traceparent()]


def test_log_records_do_not_refer_to_unrecorded_spans():
    current_span.set(CONTEXT)
    assert log_traceparent() == ""
