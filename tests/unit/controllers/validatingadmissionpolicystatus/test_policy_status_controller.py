"""Status of ValidatingAdmissionPolicies: written once per generation, from the server's OpenAPI documents."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.controllers.api.runner import ControllerRunner
from kubeloop.controllers.validatingadmissionpolicystatus.policy_status_controller import PolicyStatusController
from kubeloop.devcluster.api import errors
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.objects.resources import PODS, VALIDATING_ADMISSION_POLICIES
from support.apiserver.fake_apiserver import FakeApiServer

pytestmark = pytest.mark.virtual_time


def create(
    server: FakeApiServer, expression: str, group: str = "apps", resource: str = "deployments", **spec: Any
) -> None:
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["*"], "resources": [resource]}
    body = {
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression}],
            **spec,
        },
    }
    server.api.create(VALIDATING_ADMISSION_POLICIES.path(), body)


def status(server: FakeApiServer) -> Any:
    policy = server.store.get(VALIDATING_ADMISSION_POLICIES, "", "p")
    assert policy is not None
    return policy.get("status")


@pytest.fixture
async def controller(fake_apiserver, start) -> ControllerRunner:
    controller = ControllerRunner(fake_apiserver.context, PolicyStatusController)
    await start(fake_apiserver.informers, controller)
    return controller


async def test_valid_policy_has_no_warnings(fake_apiserver, controller):
    create(fake_apiserver, "object.spec.replicas < 5")
    await asyncio.sleep(1)
    assert status(fake_apiserver) == {"observedGeneration": 1, "typeChecking": {}}


async def test_warnings_follow_the_spec(fake_apiserver, controller):
    create(fake_apiserver, "object.spec.replics < 5")
    await asyncio.sleep(1)
    [warning] = status(fake_apiserver)["typeChecking"]["expressionWarnings"]
    assert warning["fieldRef"] == "spec.validations[0].expression"
    assert warning["warning"].startswith("apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'replics'\n")
    body = {"spec": {"validations": [{"expression": "object.spec.replicas < 5"}]}}
    await fake_apiserver.client.patch(VALIDATING_ADMISSION_POLICIES, "p", body, PatchType.MERGE)
    await asyncio.sleep(1)
    assert status(fake_apiserver) == {"observedGeneration": 2, "typeChecking": {}}


async def test_policy_is_checked_once_per_generation(fake_apiserver, controller):
    create(fake_apiserver, "true")
    await asyncio.sleep(1)
    body = {"metadata": {"labels": {"a": "b"}}}
    await fake_apiserver.client.patch(VALIDATING_ADMISSION_POLICIES, "p", body, PatchType.MERGE)
    revision = fake_apiserver.store.revision
    await asyncio.sleep(60)
    assert fake_apiserver.store.revision == revision


async def test_custom_resource_is_checked_by_its_present_schema(fake_apiserver, controller):
    create(fake_apiserver, "object.spec.missing == 1", "example.com", "widgets")
    await asyncio.sleep(1)
    [warning] = status(fake_apiserver)["typeChecking"]["expressionWarnings"]
    assert "undefined field 'spec'" in warning["warning"]
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
    properties = {"spec": {"type": "object", "properties": {"missing": {"type": "integer"}}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    fake_apiserver.api.succeed("PATCH", definitions, {"spec": {"versions": [version]}})
    body = {"spec": {"validations": [{"expression": "object.spec.missing == 2"}]}}
    await fake_apiserver.client.patch(VALIDATING_ADMISSION_POLICIES, "p", body, PatchType.MERGE)
    await asyncio.sleep(1)
    assert "expressionWarnings" not in status(fake_apiserver).get("typeChecking", {})
    assert status(fake_apiserver)["observedGeneration"] == 2


async def test_parameters_have_the_type_of_their_kind(fake_apiserver, controller):
    create(fake_apiserver, "params.dat['x'] == 'y'", paramKind={"apiVersion": "v1", "kind": "ConfigMap"})
    await asyncio.sleep(1)
    [warning] = status(fake_apiserver)["typeChecking"]["expressionWarnings"]
    assert "undefined field 'dat'" in warning["warning"]


async def test_unreadable_schemas_are_read_again(fake_apiserver, controller):
    fake_apiserver.transport.reject = lambda method, path: (
        errors.forbidden(PODS, "", "no") if path.startswith("/openapi") else None
    )
    create(fake_apiserver, "object.spec.replics < 5")
    await asyncio.sleep(10)
    assert not (status(fake_apiserver) or {}).get("observedGeneration")
    fake_apiserver.transport.reject = lambda method, path: None
    await asyncio.sleep(60)
    assert status(fake_apiserver)["typeChecking"]["expressionWarnings"]
