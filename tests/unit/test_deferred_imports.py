"""Imports inside functions: only those whose worth at start-up was measured (decision 83, docs/decisions.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

DEFERRED = {
    "controllers": {
        "cryptography": 42.4,
        "kubeloop.controllers.resourcequota.quota_monitor": 14.6,
        "kubeloop.controllers.resourcequota.usage_calculation": 11.9,
        "kubeloop.kube.objects.quota_usage": 6.4,
    },
    "informers": {},
    "kube": {
        "cryptography": 42.4,
        "ctypes": 1.2,
        "hpack": 25.1,
        "http": 1.3,
        "json": 1.3,
        "jwt": 66.3,
        "kubeloop.kube.auth.exec_plugin": 1177.0,
        "kubeloop.kube.client.aiohttp_transport": 158.1,
        "kubeloop.kube.client.asyncio_transport": 8.4,
        "kubeloop.kube.yaml": 28.3,
        "tempfile": 1.5,
        "urllib.request": 6.4,
    },
    "scheduler": {
        "aiohttp": 164.0,
        "importlib": 8.1,
        "kubeloop.scheduler.devices.cluster_devices": 55.2,
        "kubeloop.scheduler.plugins.dynamic_resources.claim_binding": 62.4,
        "kubeloop.scheduler.plugins.dynamic_resources.device_allocation": 58.5,
        "kubeloop.tracing.recording.plugin_tracer": 8.6,
    },
    "tracing": {
        "kubeloop.tracing.export.otlp_exporter": 16.8,
        "kubeloop.tracing.export.sdk_exporter": 41.8,
        "kubeloop.tracing.spans.observed_phases": 2.4,
        "opentelemetry": 6.9,
    },
}
"""Modules that may be imported inside functions, by folder; CPU milliseconds that each adds to the imports of
kubeloop.process.control_plane.control_plane (`http`: of kubeloop.kube.errors, which `--help` imports; modules of
devices: of kubeloop.scheduler.scheduler and the in-tree plugins)."""


def module_of(statement: ast.Import | ast.ImportFrom) -> str:
    """Return the module of our own that is imported, or the package of others."""
    if isinstance(statement, ast.Import):
        return statement.names[0].name
    module = str(statement.module)
    if (ROOT / "kubeloop" / module.removeprefix("kubeloop.").replace(".", "/")).is_dir():
        return f"{module}.{statement.names[0].name}"
    return module if module.startswith("kubeloop.") else module.split(".", maxsplit=1)[0]


def deferred_imports(folder: str) -> Iterator[str]:
    for file in (ROOT / folder).rglob("*.py"):
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                statements = (node for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom))
                yield from map(module_of, statements)


@pytest.mark.parametrize("folder", DEFERRED)
def test_deferred_imports_are_those_that_were_measured(folder: str):
    assert set(deferred_imports(folder)) == DEFERRED[folder].keys()


def test_deferred_imports_save_a_millisecond():
    assert [name for modules in DEFERRED.values() for name, ms in modules.items() if ms < 1.0] == []
