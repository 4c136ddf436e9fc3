"""Definitions of custom resources in a server in memory: what they serve, when, and what happens to their objects."""

import copy
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from kubeloop.devcluster.serializer.protobuf.wire import wire_values
from kubeloop.devcluster.storage.data_directory import DataDirectory
from support.api_requests import InProcessApi
from support.custom_resource_requests import WIDGETS, definition, widget

JSON = dict[str, Any]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGET_PATH = "/apis/example.com/v1/namespaces/default/widgets"
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


@pytest.fixture
async def api() -> InProcessApi:
    return InProcessApi()


def conditions(obj: JSON) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in obj["status"]["conditions"]}


async def events(stream: AsyncIterator[bytes], count: int) -> list[tuple[str, JSON]]:
    found: list[tuple[str, JSON]] = []
    async for chunk in stream:
        found += [(line["type"], line["object"]) for line in map(msgspec.json.decode, chunk.splitlines())]
        if len(found) >= count:
            break
    await stream.aclose()  # type: ignore[attr-defined]
    return found


async def test_watchers_of_definitions_see_the_names_accepted_and_then_the_definition_established(api: InProcessApi):
    revision = api.succeed("GET", CRDS)["metadata"]["resourceVersion"]
    watch = api.succeed("GET", f"{CRDS}?watch=1&resourceVersion={revision}")
    api.succeed("POST", CRDS, WIDGETS)
    seen = await events(watch, 3)
    assert [type_ for type_, _ in seen] == ["ADDED", "MODIFIED", "MODIFIED"]
    assert not seen[0][1]["status"]["conditions"]
    assert conditions(seen[1][1]) == {"NamesAccepted": ("True", "NoConflicts"), "Established": ("False", "Installing")}
    assert conditions(seen[2][1])["Established"] == ("True", "InitialNamesAccepted")


async def test_a_watch_tells_of_objects_and_ends_when_the_definition_changes(api: InProcessApi):
    api.succeed("POST", CRDS, WIDGETS)
    watch = api.succeed("GET", f"{WIDGET_PATH}?watch=1&fieldSelector=spec.color%3Dred")
    api.succeed("POST", WIDGET_PATH, widget("a"))
    api.succeed("POST", WIDGET_PATH, widget("b", {"color": "blue"}))
    api.succeed("PATCH", f"{WIDGET_PATH}/a", {"spec": {"color": "green"}}, MERGE)
    seen = await events(watch, 2)
    assert [(type_, obj["metadata"]["name"]) for type_, obj in seen] == [("ADDED", "a"), ("DELETED", "a")]
    watch = api.succeed("GET", f"{WIDGET_PATH}?watch=1&resourceVersion={seen[-1][1]['metadata']['resourceVersion']}")
    changed = copy.deepcopy(WIDGETS["spec"]["versions"])
    changed[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["fresh"] = {
        "type": "string",
        "default": "yes",
    }
    api.succeed("PATCH", f"{CRDS}/widgets.example.com", {"spec": {"versions": changed}}, MERGE)
    assert [chunk async for chunk in watch] == []
    assert api.succeed("GET", f"{WIDGET_PATH}/a")["spec"]["fresh"] == "yes"


async def test_a_definition_waits_for_the_finalizers_of_its_objects(api: InProcessApi):
    api.succeed("POST", CRDS, WIDGETS)
    api.succeed("POST", WIDGET_PATH, widget("free"))
    held = widget("held")
    held["metadata"]["finalizers"] = ["example.com/mine"]
    api.succeed("POST", WIDGET_PATH, held)
    api.succeed("DELETE", f"{CRDS}/widgets.example.com")
    waiting = api.succeed("GET", f"{CRDS}/widgets.example.com")
    assert waiting["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert conditions(waiting)["Terminating"] == ("True", "InstanceDeletionInProgress")
    (left,) = api.succeed("GET", WIDGET_PATH)["items"]
    assert "deletionTimestamp" in left["metadata"]
    assert api("POST", WIDGET_PATH, widget("late"))[0] == 403
    verbs = next(each["verbs"] for each in api.succeed("GET", "/apis/example.com/v1")["resources"])
    assert "create" not in verbs
    api.succeed("PATCH", f"{WIDGET_PATH}/held", {"metadata": {"finalizers": None}}, MERGE)
    assert api("GET", f"{CRDS}/widgets.example.com")[0] == 404
    assert api("GET", WIDGET_PATH) == (404, "404 page not found\n")


async def test_objects_are_gone_when_their_definition_comes_back(api: InProcessApi):
    api.succeed("POST", CRDS, WIDGETS)
    api.succeed("POST", WIDGET_PATH, widget("a"))
    api.succeed("DELETE", f"{CRDS}/widgets.example.com")
    api.succeed("POST", CRDS, WIDGETS)
    assert api.succeed("GET", WIDGET_PATH)["items"] == []


async def test_a_definition_with_a_taken_name_is_served_once_the_name_is_free(api: InProcessApi):
    api.succeed("POST", CRDS, definition("gears", "Gear"))
    api.succeed("POST", CRDS, definition("cogs", "Gear"))
    refused = conditions(api.succeed("GET", f"{CRDS}/cogs.other.example.com"))
    assert refused == {"NamesAccepted": ("False", "ListKindConflict"), "Established": ("False", "NotAccepted")}
    api.succeed("DELETE", f"{CRDS}/gears.other.example.com")
    assert conditions(api.succeed("GET", f"{CRDS}/cogs.other.example.com"))["Established"][0] == "True"
    assert api.succeed("GET", "/apis/other.example.com/v1/cogs")["kind"] == "GearList"


async def test_another_server_in_the_process_knows_nothing_of_the_definitions_of_one(api: InProcessApi):
    api.succeed("POST", CRDS, WIDGETS)
    other = InProcessApi()
    assert other("GET", WIDGET_PATH)[0] == 404
    assert "example.com" not in json.dumps(other.succeed("GET", "/apis"))
    assert "example.com" not in json.dumps(other.succeed("GET", "/openapi/v3"))
    assert "apis/example.com/v1" in json.loads(api.succeed("GET", "/openapi/v3"))["paths"]


async def test_definitions_and_objects_are_there_after_a_restart(tmp_path):
    data_directory = DataDirectory(tmp_path)
    api = InProcessApi(data_directory=data_directory)
    api.succeed("POST", CRDS, WIDGETS)
    created = api.succeed("POST", WIDGET_PATH, widget("a", {"replicas": 3}))
    data_directory.close()
    data_directory = DataDirectory(tmp_path)
    again = InProcessApi(data_directory=data_directory)
    assert again.succeed("GET", f"{WIDGET_PATH}/a") == created
    assert again.succeed("GET", f"{CRDS}/widgets.example.com") == api.succeed("GET", f"{CRDS}/widgets.example.com")
    assert again("POST", WIDGET_PATH, widget("b", {"color": "pink"}))[0] == 422
    data_directory.close()


async def test_a_quota_counts_custom_resources(api: InProcessApi):
    api.succeed("POST", CRDS, WIDGETS)
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/widgets.example.com": "1"}}}
    api.succeed("POST", "/api/v1/namespaces/default/resourcequotas", quota)
    api.succeed("POST", WIDGET_PATH, widget("a"))
    status, answer = api("POST", WIDGET_PATH, widget("b"))
    assert status == 403
    assert "exceeded quota: q, requested: count/widgets.example.com=1" in answer["message"]


async def test_kinds_that_share_a_name_with_one_of_kubernetes_have_rules_of_their_own(api: InProcessApi):
    api.succeed("POST", CRDS, definition("services", "Service", "serving.example.com"))
    service = {
        "apiVersion": "serving.example.com/v1",
        "kind": "Service",
        "metadata": {"name": "x"},
        "spec": {"template": {}},
    }
    created = api.succeed("POST", "/apis/serving.example.com/v1/services", service)
    assert created["spec"] == {"template": {}}
    assert "status" not in created
    assert api.succeed("GET", "/api/v1/services")["items"] != []


async def test_a_default_that_comes_later_is_seen_in_lists_too_and_a_field_that_goes_is_not(api: InProcessApi):
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    api.succeed("POST", CRDS, definition(schema={"openAPIV3Schema": schema}))
    gear = {"apiVersion": "other.example.com/v1", "kind": "Gear", "metadata": {"name": "g"}, "a": "x"}
    created = api.succeed("POST", "/apis/other.example.com/v1/gears", gear)
    changed = {"type": "object", "properties": {"b": {"type": "string", "default": "new"}}}
    (version,) = definition(schema={"openAPIV3Schema": changed})["spec"]["versions"]
    api.succeed("PATCH", f"{CRDS}/gears.other.example.com", {"spec": {"versions": [version]}}, MERGE)
    (listed,) = api.succeed("GET", "/apis/other.example.com/v1/gears")["items"]
    assert (listed.get("a"), listed["b"]) == (None, "new")
    assert listed["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]


async def test_a_status_with_a_default_is_there_from_the_start_and_a_sent_one_is_not(api: InProcessApi):
    status = {"type": "object", "default": {"phase": "Waiting"}, "properties": {"phase": {"type": "string"}}}
    schema = {"type": "object", "properties": {"status": status}}
    api.succeed("POST", CRDS, definition(schema={"openAPIV3Schema": schema}, subresources={"status": {}}))
    gear = {
        "apiVersion": "other.example.com/v1",
        "kind": "Gear",
        "metadata": {"name": "g"},
        "status": {"phase": "Mine"},
    }
    assert api.succeed("POST", "/apis/other.example.com/v1/gears?dryRun=All", gear)["status"] == {"phase": "Waiting"}
    created = api.succeed("POST", "/apis/other.example.com/v1/gears", gear)
    assert created["status"] == {"phase": "Waiting"}
    assert "f:status" not in created["metadata"].get("managedFields", [{"fieldsV1": {}}])[0]["fieldsV1"]


async def test_an_unapproved_group_of_kubernetes_has_a_condition_that_says_so(api: InProcessApi):
    gears = definition(group="gears.k8s.io")
    gears["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, an experiment"}
    api.succeed("POST", CRDS, gears)
    found = conditions(api.succeed("GET", f"{CRDS}/gears.gears.k8s.io"))
    assert found["KubernetesAPIApprovalPolicyConformant"] == ("False", "UnapprovedAnnotation")
    assert found["Established"][0] == "True"


async def test_the_protobuf_form_of_openapi_has_custom_resources_too(api: InProcessApi):
    api.succeed("POST", CRDS, WIDGETS)
    accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    response = api.respond("GET", "/openapi/v2", accept=accept)
    assert response.status == 200
    assert isinstance(response.body, bytes)
    definitions = next(value for number, _, value in wire_values(response.body) if number == 9)
    named = [{number: value for number, _, value in wire_values(each)} for _, _, each in wire_values(definitions)]
    (widgets,) = [each[2] for each in named if each[1] == b"com.example.v1.Widget"]
    properties = next(value for number, _, value in wire_values(widgets) if number == 25)
    assert {
        value for _, _, each in wire_values(properties) for number, _, value in wire_values(each) if number == 1
    } == {
        b"apiVersion",
        b"kind",
        b"metadata",
        b"spec",
        b"status",
    }
