"""StorageVersionMigrations: validation of the target and of the status, and the row of kubectl get."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeloop.devcluster.kinds.storagemigration.storage_version_migration import STRATEGY
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.feature_gates import FeatureGates
from support.apiserver.api_requests import InProcessApi

PATH = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations"
WIDGETS = {"resource": "widgets", "group": "example.com"}


@pytest.fixture
async def api() -> InProcessApi:
    return InProcessApi(settings=ServingSettings(feature_gates=FeatureGates({"StorageVersionMigrator": True})))


def condition(type_: str, status: str = "True") -> dict[str, Any]:
    return {"type": type_, "status": status, "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"}


async def test_api_is_served_with_its_gate_only(api: InProcessApi):
    assert api("GET", PATH)[0] == 200
    others = InProcessApi()
    assert others("GET", PATH)[0] == 404
    groups = {group["name"] for group in others("GET", "/apis")[1]["groups"]}
    assert "storagemigration.k8s.io" not in groups
    documents = json.loads(others.respond("GET", "/openapi/v3").body)["paths"]
    assert "apis/apps" in documents
    assert "apis/storagemigration.k8s.io" not in documents


@pytest.mark.parametrize(
    ("target", "fields"),
    [
        (WIDGETS, []),
        ({"resource": "pods"}, []),
        ({"resource": "", "group": "example.com"}, ["spec.resource.resource"]),
        ({"resource": "Pods"}, ["spec.resource.resource"]),
        ({"resource": "pods", "group": "A_b"}, ["spec.resource.group"]),
    ],
)
async def test_target_is_validated(api: InProcessApi, target: Any, fields: list[str]):
    status, response = api("POST", PATH, {"metadata": {"name": "m"}, "spec": {"resource": target}})
    assert status == (422 if fields else 201)
    assert [cause["field"] for cause in response.get("details", {}).get("causes", ())] == fields


async def test_spec_is_immutable(api: InProcessApi):
    api.create(PATH, {"metadata": {"name": "m"}, "spec": {"resource": WIDGETS}})
    status, response = api("PATCH", f"{PATH}/m", {"spec": {"resource": {"resource": "pods"}}})
    value = '{"Resource":{"group":"example.com","resource":"pods"}}'
    assert (status, response["details"]["causes"][0]["message"]) == (422, f"Invalid value: {value}: field is immutable")


@pytest.mark.parametrize(
    ("old", "new", "messages"),
    [
        pytest.param({}, {"resourceVersion": "7"}, [], id="valid"),
        pytest.param({}, {"resourceVersion": "07"}, ["resource version is not well formed: 07"], id="leading zero"),
        pytest.param({"resourceVersion": "7"}, {"resourceVersion": "8"}, ["field is immutable"], id="changed"),
        pytest.param(
            {},
            {"conditions": [condition("Succeeded"), condition("Failed")]},
            ["Both success and failed conditions cannot be true at the same time"],
            id="both outcomes",
        ),
        pytest.param(
            {"conditions": [condition("Succeeded")]},
            {"conditions": [condition("Succeeded", "False")]},
            ["Success condition cannot be set to false once it is true"],
            id="no longer successful",
        ),
        pytest.param(
            {"conditions": [condition("Failed")]},
            {"conditions": []},
            ["Failed condition cannot be set to false once it is true"],
            id="no longer failed",
        ),
    ],
)
def test_status_is_validated(old: Any, new: Any, messages: list[str]):
    errors = ErrorList()
    STRATEGY.validate_subresources["status"](errors, {"status": new}, {"status": old})
    assert [
        error["message"].rpartition(": ")[2]
        if "formed" not in error["message"]
        else error["message"].partition('": ')[2]
        for error in errors
    ] == messages


@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        ([], "Unknown"),
        ([condition("Running")], "Running"),
        ([condition("Running", "False"), condition("Failed")], "Failed"),
    ],
)
async def test_row_names_target_and_status(api: InProcessApi, conditions: Any, status: str):
    api.create(PATH, {"metadata": {"name": "m"}, "spec": {"resource": WIDGETS}})
    api.succeed("PATCH", f"{PATH}/m/status", {"status": {"conditions": conditions}})
    table = api("GET", PATH, accept="application/json;as=Table;v=v1;g=meta.k8s.io")[1]
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Resource", "Status"]
    assert [row["cells"] for row in table["rows"]] == [["m", "widgets.example.com", status]]
