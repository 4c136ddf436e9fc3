"""Imports inside functions: only those whose worth at start-up was measured (decision 83, docs/decisions.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.development.syntax import statements

ROOT = Path(__file__).resolve().parents[2]

DEFERRED: dict[str, dict[str, float]] = {
    "cel": {"re2": 5.1},
    "controllers": {
        "cryptography": 42.4,
        "kubeloop.kube.auth.credentials": 3.4,
        "kubeloop.controllers.resourcequota.quota_monitor": 14.6,
        "kubeloop.controllers.resourcequota.usage_calculation": 11.9,
        "kubeloop.kube.objects.quota_usage": 6.4,
    },
    "devcluster": {
        "kubeloop.devcluster.outgoing.webhook_credentials": 4.7,
        "kubeloop.devcluster.admission.optional.node_rules": 4.8,
        "cryptography": 42.4,
        "ctypes": 1.1,
        "jwt": 14.8,
        "kubeloop.cel.types": 2.9,
        "kubeloop.devcluster.admission.pod_security_checks": 2.8,
        "kubeloop.devcluster.admission.policies.compiled_policies": 55.6,
        "kubeloop.devcluster.admission.webhooks.configured_webhooks": 56.0,
        "kubeloop.devcluster.apiextensions.cel_rules": 51.7,
        "kubeloop.devcluster.aggregation.backend": 4.4,
        "kubeloop.devcluster.aggregation.downloads": 8.9,
        "kubeloop.devcluster.aggregation.openapi": 3.8,
        "kubeloop.devcluster.apiextensions.conversion_webhook": 1.5,
        "kubeloop.devcluster.apiextensions.openapi_documents": 30.6,
        "kubeloop.devcluster.audit.auditor": 5.5,
        "kubeloop.devcluster.authorization.access_reviews": 1.8,
        "kubeloop.devcluster.authorization.impersonation": 1.8,
        "kubeloop.devcluster.authorization.node_authorizer": 1.8,
        "kubeloop.devcluster.authorization.rbac": 1.8,
        "kubeloop.devcluster.authorization.rule_coverage": 1.8,
        "kubeloop.devcluster.authorization.users": 1.8,
        "kubeloop.devcluster.apiextensions.served_version": 16.3,
        "kubeloop.devcluster.handlers.containers.container_logs": 2.1,
        "kubeloop.devcluster.handlers.containers.port_forward": 28.6,
        "kubeloop.devcluster.handlers.containers.proxy": 29.3,
        "kubeloop.devcluster.handlers.containers.remote_command": 29.9,
        "kubeloop.devcluster.handlers.containers.websocket": 25.5,
        "kubeloop.devcluster.handlers.reading.protobuf_responses": 4.4,
        "kubeloop.devcluster.handlers.reading.shard_selector": 12.8,
        "kubeloop.devcluster.kubelet.nodes.resource_slices": 30.2,
        "kubeloop.devcluster.kubelet.stages.expressions": 41.7,
        "kubeloop.devcluster.kubelet.stages.pod_stages": 51.8,
        "kubeloop.devcluster.languages.mutation_objects": 41.4,
        "kubeloop.devcluster.serializer.protobuf.codec": 3.9,
        "kubeloop.devcluster.server.metrics_page": 25.6,
        "kubeloop.kube.auth.certificate_authority": 61.3,
        "kubeloop.kube.client.asyncio_transport": 8.4,
        "kubeloop.kube.policy_cel.environment": 42.9,
        "kubeloop.kube.yaml": 27.8,
        "tempfile": 1.5,
    },
    "informers": {},
    "kube": {
        "cryptography": 42.4,
        "ctypes": 1.2,
        "difflib": 1.0,
        "hpack": 25.1,
        "http": 1.3,
        "importlib": 8.1,
        "json": 1.3,
        "jwt": 66.3,
        "kubeloop.kube.auth.exec_plugin": 1177.0,
        "kubeloop.kube.client.aiohttp_transport": 158.1,
        "kubeloop.kube.client.asyncio_transport": 8.4,
        "kubeloop.kube.yaml": 28.3,
        "tempfile": 1.5,
        "urllib.request": 6.4,
    },
    "kubeloop": {
        "kubeloop.tracing.export.resource": 14.7,
        "kubeloop.kube.objects.resources": 11.8,
        "kubeloop.replay.page": 6.6,
        "kubeloop.cli.replay.replay": 290.2,
        "click": 41.8,
        "kubeloop.cli.apiserver": 343.4,
        "kubeloop.cli.completion.names": 38.9,
        "kubeloop.cli.completion.shells": 8.6,
        "kubeloop.cli.envtest": 2.5,
        "kubeloop.cli.explain.cluster": 347.6,
        "kubeloop.cli.explain.explain": 45.7,
        "kubeloop.cli.kubeconfig": 153.5,
        "kubeloop.cli.main": 83.3,
        "kubeloop.cli.manifests": 123.2,
        "kubeloop.cli.nodes": 66.3,
        "kubeloop.cli.observe": 130.2,
        "kubeloop.cli.operator_faults": 137.9,
        "kubeloop.cli.options.scheduler_options": 4.0,
        "kubeloop.cli.progress_table": 65.3,
        "kubeloop.cli.top.app": 82.4,
        "kubeloop.cli.top.source": 168.5,
        "kubeloop.cli.recording.plan": 628.7,
        "kubeloop.cli.recording.record": 73.3,
        "kubeloop.cli.run": 122.2,
        "kubeloop.cli.terminal": 1.5,
        "kubeloop.cli.trace.trace": 48.1,
        "kubeloop.cli.trace.watch": 62.0,
        "kubeloop.cli.up": 5.0,
        "kubeloop.cli.up_session": 54.6,
        "kubeloop.controllers.api.runner": 26.7,
        "kubeloop.devcluster.audit.log_file": 1.2,
        "kubeloop.devcluster.audit.policy": 1.2,
        "kubeloop.kube.auth.certificate_authority": 61.3,
        "kubeloop.devcluster.kubelet.stages.answer_files": 21.6,
        "kubeloop.devcluster.kubelet.stages.files": 22.4,
        "kubeloop.devcluster.kubelet.stages.objects": 54.2,
        "kubeloop.devcluster.outgoing.service_addresses": 13.3,
        "kubeloop.devcluster.serializer.protobuf.codec": 1.6,
        "kubeloop.devcluster.server.faults": 3.1,
        "kubeloop.devcluster.simulation.device_files": 128.2,
        "kubeloop.devcluster.simulation.node_objects": 5.2,
        "kubeloop.kube.class_loading": 1.3,
        "kubeloop.kube.client.api_client": 6.5,
        "kubeloop.kube.feature_gates": 2.3,
        "kubeloop.kube.yaml": 28.3,
        "kubeloop.process.control_plane.control_plane": 50.1,
        "kubeloop.process.control_plane.controller_selection": 2.1,
        "kubeloop.process.control_plane.scheduler_plugins": 238.7,
        "kubeloop.process.development_cluster.node_options": 3.4,
        "kubeloop.process.development_cluster.remote_nodes": 101.8,
        "kubeloop.process.endpoint.owner_pods": 41.6,
        "kubeloop.process.endpoint.process_pages": 14.1,
        "kubeloop.process.endpoint.server": 14.1,
        "kubeloop.process.metrics.histogram_families": 77.0,
        "kubeloop.scheduler.cache.pod_groups": 8.6,
        "kubeloop.scheduler.config.load": 45.6,
        "kubeloop.scheduler.config.types": 11.6,
        "kubeloop.scheduler.config.v1": 44.5,
        "kubeloop.scheduler.event_handlers": 192.2,
        "kubeloop.scheduler.explain.cache_debugger": 190.2,
        "kubeloop.scheduler.explain.pending_pod": 234.4,
        "kubeloop.scheduler.explain.pod_group": 324.9,
        "kubeloop.scheduler.extenders.extender": 196.2,
        "kubeloop.scheduler.framework.profile_plugins": 207.8,
        "kubeloop.scheduler.legacy_policy.plugins": 6.9,
        "kubeloop.scheduler.legacy_policy.policy": 52.8,
        "kubeloop.scheduler.legacy_policy.volume_limits": 210.1,
        "kubeloop.scheduler.scheduler": 224.2,
        "kubeloop.testing.envtest.server": 402.7,
        "kubeloop.testing.operator_faults.fixture": 134.8,
        "kubeloop.testing.session": 133.2,
        "kubeloop.tracing.views.columns": 3.2,
        "kubeloop.tracing.views.perfetto": 2.4,
        "kubeloop.tracing.views.rollout_view": 63.2,
        "kubeloop.tracing.views.waterfall": 59.0,
        "prometheus_client": 42.8,
        "rich": 51.0,
    },
    "scheduler": {
        "aiohttp": 164.0,
        "kubeloop.scheduler.devices.cluster_devices": 55.2,
        "kubeloop.scheduler.extenders.extender": 1.8,
        "kubeloop.scheduler.plugins.dynamic_resources.claim_binding": 62.4,
        "kubeloop.scheduler.plugins.dynamic_resources.device_allocation": 58.5,
        "kubeloop.scheduler.pod_groups.group_conditions": 1.2,
        "kubeloop.scheduler.pod_groups.pod_group_cycle": 6.6,
        "kubeloop.tracing.recording.plugin_tracer": 8.6,
    },
    "tracing": {
        "kubeloop.kube.yaml": 28.3,
        "kubeloop.tracing.export.otlp_exporter": 16.8,
        "kubeloop.tracing.export.sdk_exporter": 41.8,
        "kubeloop.tracing.spans.observed_phases": 2.4,
        "opentelemetry": 6.9,
    },
}
"""Modules that may be imported inside functions, by folder, with the CPU milliseconds of the import. In `cel` and
`kubeloop`: after the import of the module that defers it, the least of all. Elsewhere: after that of
kubeloop.process.control_plane.control_plane (`http`: of kubeloop.kube.errors; `difflib`: of kubeloop.kube.user_error;
modules of devices and pod groups: of kubeloop.scheduler.scheduler and the in-tree plugins; devcluster: of all modules
of a started `kubeloop apiserver`, for `cryptography` and `tempfile` of kubeloop.cli.up_session). Modules of
devcluster.authorization and those of devcluster.audit in `kubeloop`: all of them together, since one that is imported
at the start would import most of the others."""


def module_of(statement: ast.Import | ast.ImportFrom) -> str:
    """Return the module of our own that is imported, or the package of others."""
    if isinstance(statement, ast.Import):
        return statement.names[0].name
    module = str(statement.module)
    if (ROOT / "kubeloop" / module.removeprefix("kubeloop.").replace(".", "/")).is_dir():
        return f"{module}.{statement.names[0].name}"
    return module if module.startswith("kubeloop.") else module.split(".", maxsplit=1)[0]


def deferred_imports(folder: str) -> Iterator[str]:
    for file in (file for file in (ROOT / folder).rglob("*.py") if not any(map(Path.is_symlink, file.parents))):
        for function in statements(ast.parse(file.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                imports = (node for node in statements(function) if isinstance(node, ast.Import | ast.ImportFrom))
                yield from map(module_of, imports)


@pytest.mark.parametrize("folder", DEFERRED)
def test_deferred_imports_are_those_that_were_measured(folder: str):
    assert set(deferred_imports(folder)) == DEFERRED[folder].keys()


def test_deferred_imports_save_a_millisecond():
    assert [name for modules in DEFERRED.values() for name, ms in modules.items() if ms < 1.0] == []
