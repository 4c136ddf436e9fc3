"""Dynamic admission: what it imports without policies, and policies on requests."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from kubeloop.devcluster.admission.dynamic_admission import DynamicAdmission
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.served_resources import (
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
)
from kubeloop.devcluster.apiextensions.definitions import Definitions
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects.resources import NAMESPACES
from support.apiserver.policy_cluster import ADMISSION, CONFIG_MAPS, EVERY_RESOURCE
from support.apiserver.request_contexts import request_context
from support.apiserver.served_definitions import webhook_client

JSON = dict[str, Any]
FORBID_A: JSON = {"validations": [{"expression": "object == null || object.metadata.name != 'a'", "message": "no a"}]}


def test_policies_audit_and_yaml_are_not_imported_without_use():
    code = """
import asyncio, random, sys
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.kube.clock import SystemClock

async def main():
    server = ApiServer(clock=SystemClock(), rng=random.Random(1), token=None)
    body = b'{"metadata": {"name": "a"}}'
    response = server.respond(ApiRequest.of("POST", "/api/v1/namespaces/default/configmaps", {}, body))
    assert response.status == 201, response
    deferred = ("kubeloop.devcluster.admission.policies", "kubeloop.devcluster.audit.auditor", "yaml")
    print([name for name in sys.modules if name.startswith(deferred)])

asyncio.run(main())
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.stdout.strip() == "[]", process.stderr


# --- the plugin alone -------------------------------------------------------------------------------------------------


@pytest.fixture
def plugin() -> DynamicAdmission:
    """Return a plugin over a store with a policy that forbids the name `a`."""
    store = ObjectStore(seconds=lambda: 0.0)
    store.create(NAMESPACES, {"metadata": {"name": "default", "uid": "u"}})
    selectors: JSON = {"objectSelector": {}, "namespaceSelector": {}}
    spec = {**FORBID_A, "matchConstraints": {**EVERY_RESOURCE, **selectors}}
    store.create(VALIDATING_ADMISSION_POLICIES, {"metadata": {"name": "p", "uid": "p"}, "spec": spec})
    binding = {"policyName": "p", "validationActions": ["Deny"]}
    store.create(VALIDATING_ADMISSION_POLICY_BINDINGS, {"metadata": {"name": "p", "uid": "b"}, "spec": binding})
    client = webhook_client(store)
    return DynamicAdmission(store, Definitions(store, SystemClock(), lambda served: None, client), client)


def config_map(name: str) -> JSON:
    return {"metadata": {"name": name, "namespace": "default"}}


async def test_check_denies_the_request(plugin: DynamicAdmission):
    context = request_context("POST", CONFIG_MAPS)
    await plugin.check(context, "CREATE", config_map("b"), None)
    with pytest.raises(StatusError, match="denied request: no a"):
        await plugin.check(context, "CREATE", config_map("a"), None)


async def test_check_ignores_admission_policies(plugin: DynamicAdmission):
    context = request_context("POST", f"{ADMISSION}/validatingadmissionpolicies")
    assert not plugin.apply_to(context)
    await plugin.check(context, "CREATE", {"metadata": {"name": "a"}}, None)


async def test_mutate_without_mutating_policies_runs_none(plugin: DynamicAdmission):
    context = request_context("POST", CONFIG_MAPS)
    assert plugin.apply_to(context)
    assert await plugin.mutate(context, "CREATE", config_map("a"), None) is None
