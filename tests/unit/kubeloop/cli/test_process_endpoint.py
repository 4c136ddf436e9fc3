"""Endpoint of a command that runs until it is stopped."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from kubeloop.cli.process_endpoint import serve_endpoint
from kubeloop.kube.clock import SystemClock
from kubeloop.process.endpoint.endpoint_listener import listener_url, open_listener
from kubeloop.process.endpoint.server import EndpointServer
from kubeloop.process.process_files import ProcessRecord, list_processes, process_exists


async def test_process_is_listed_while_its_endpoint_is_served(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    endpoint = EndpointServer(CollectorRegistry(), clock=SystemClock())
    with open_listener("127.0.0.1", 0) as listener:
        pid = next(pid for pid in range(1, 1000) if process_exists(pid))
        record = ProcessRecord(pid, listener_url(listener), "https://server", (), 1)
        task = asyncio.create_task(serve_endpoint(endpoint, listener, record, "kubeloop serves"))
        async with asyncio.timeout(60):
            while not list_processes():
                await asyncio.sleep(0.01)
        assert list_processes() == [record]
        output = capsys.readouterr().err
        assert output.splitlines() == [
            "kubeloop serves",
            f"endpoint {record.endpoint}",
            f"  in a browser: {record.endpoint}/traces",
        ]
        task.cancel()
        await asyncio.wait([task])
    assert list_processes() == []
