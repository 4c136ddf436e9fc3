"""CustomResourceDefinitions: conditions, served versions, finalization, and the objects of custom resources."""

import copy
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.apiextensions.definitions import Definitions
from kubeloop.devcluster.serializer.protobuf.wire import wire_values
from kubeloop.devcluster.storage.data_directory import DataDirectory
from support.apiserver.api_requests import InProcessApi
from support.apiserver.served_definitions import ServedDefinitions
from support.comparison.custom_resource_requests import WIDGETS, definition, widget

JSON = dict[str, Any]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGET_PATH = "/apis/example.com/v1/namespaces/default/widgets"
MERGE = "application/merge-patch+json"


@pytest.fixture
async def api() -> InProcessApi:
    return InProcessApi()


def conditions(obj: JSON) -> dict[str, tuple[str, str]]:
    return {condition["type"]: (condition["status"], condition["reason"]) for condition in obj["status"]["conditions"]}


async def watch_events(stream: AsyncIterator[bytes], count: int) -> list[tuple[str, JSON]]:
    """Return type and object of the first `count` events and close the stream."""
    events: list[tuple[str, JSON]] = []
    async for chunk in stream:
        events += [(line["type"], line["object"]) for line in map(msgspec.json.decode, chunk.splitlines())]
        if len(events) >= count:
            break
    await stream.aclose()  # type: ignore[attr-defined]
    return events


def test_store_without_definitions_serves_no_custom_resource():
    definitions: Definitions = ServedDefinitions().definitions
    assert (definitions.versions(), definitions.revision, definitions.pending) == ([], 0, False)


def test_settle_establishes_and_serves_a_new_definition():
    served = ServedDefinitions()
    created = served.create(definition())
    assert conditions(created) == {
        "NamesAccepted": ("True", "NoConflicts"),
        "Established": ("True", "InitialNamesAccepted"),
    }
    assert created["status"]["acceptedNames"]["plural"] == "gears"
    assert [version.served.resource.plural for version in served.definitions.versions()] == ["gears"]


def test_route_parses_paths_of_served_versions():
    served = ServedDefinitions()
    served.create(definition(subresources={"status": {}}))
    route = served.definitions.route("/apis/other.example.com/v1/gears/a/status", "GET")
    assert route is not None
    assert (route.served.resource.kind, route.namespace, route.name, route.subresource) == ("Gear", "", "a", "status")
    assert served.definitions.route("/apis/other.example.com/v2/gears", "GET") is None
    assert served.definitions.route("/apis/other.example.com/v1/namespaces/default/gears", "GET") is None
    with pytest.raises(StatusError):
        served.definitions.route("/apis/other.example.com/v1/gears/a/scale", "GET")


async def test_watch_shows_names_accepted_then_definition_established(api: InProcessApi):
    revision = api.succeed("GET", CRDS)["metadata"]["resourceVersion"]
    watch = api.succeed("GET", f"{CRDS}?watch=1&resourceVersion={revision}")
    api.succeed("POST", CRDS, WIDGETS)
    events = await watch_events(watch, 3)
    assert [type_ for type_, _ in events] == ["ADDED", "MODIFIED", "MODIFIED"]
    assert not events[0][1]["status"]["conditions"]
    assert conditions(events[1][1]) == {
        "NamesAccepted": ("True", "NoConflicts"),
        "Established": ("False", "Installing"),
    }
    assert conditions(events[2][1])["Established"] == ("True", "InitialNamesAccepted")


async def test_watch_of_objects_ends_when_the_definition_changes(api: InProcessApi):
    api.succeed("POST", CRDS, WIDGETS)
    watch = api.succeed("GET", f"{WIDGET_PATH}?watch=1&fieldSelector=spec.color%3Dred")
    api.succeed("POST", WIDGET_PATH, widget("a"))
    api.succeed("POST", WIDGET_PATH, widget("b", {"color": "blue"}))
    api.succeed("PATCH", f"{WIDGET_PATH}/a", {"spec": {"color": "green"}}, MERGE)
    events = await watch_events(watch, 2)
    assert [(type_, obj["metadata"]["name"]) for type_, obj in events] == [("ADDED", "a"), ("DELETED", "a")]
    watch = api.succeed("GET", f"{WIDGET_PATH}?watch=1&resourceVersion={events[-1][1]['metadata']['resourceVersion']}")
    versions = copy.deepcopy(WIDGETS["spec"]["versions"])
    versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["shape"] = {
        "type": "string",
        "default": "round",
    }
    api.succeed("PATCH", f"{CRDS}/widgets.example.com", {"spec": {"versions": versions}}, MERGE)
    assert [chunk async for chunk in watch] == []
    assert api.succeed("GET", f"{WIDGET_PATH}/a")["spec"]["shape"] == "round"


async def test_definition_is_deleted_after_its_finalized_objects(api: InProcessApi):
    api.succeed("POST", CRDS, WIDGETS)
    api.succeed("POST", WIDGET_PATH, widget("free"))
    finalized = widget("finalized")
    finalized["metadata"]["finalizers"] = ["example.com/mine"]
    api.succeed("POST", WIDGET_PATH, finalized)
    api.succeed("DELETE", f"{CRDS}/widgets.example.com")
    terminating = api.succeed("GET", f"{CRDS}/widgets.example.com")
    assert terminating["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert conditions(terminating)["Terminating"] == ("True", "InstanceDeletionInProgress")
    (remaining,) = api.succeed("GET", WIDGET_PATH)["items"]
    assert "deletionTimestamp" in remaining["metadata"]
    assert api("POST", WIDGET_PATH, widget("late"))[0] == 403
    verbs = api.succeed("GET", "/apis/example.com/v1")["resources"][0]["verbs"]
    assert "create" not in verbs
    api.succeed("PATCH", f"{WIDGET_PATH}/finalized", {"metadata": {"finalizers": None}}, MERGE)
    assert api("GET", f"{CRDS}/widgets.example.com")[0] == 404
    assert api("GET", WIDGET_PATH) == (404, "404 page not found\n")


async def test_recreated_definition_has_no_objects(api: InProcessApi):
    api.succeed("POST", CRDS, WIDGETS)
    api.succeed("POST", WIDGET_PATH, widget("a"))
    api.succeed("DELETE", f"{CRDS}/widgets.example.com")
    api.succeed("POST", CRDS, WIDGETS)
    assert api.succeed("GET", WIDGET_PATH)["items"] == []


async def test_definition_is_served_when_its_names_become_free(api: InProcessApi):
    api.succeed("POST", CRDS, definition("gears", "Gear"))
    api.succeed("POST", CRDS, definition("cogs", "Gear"))
    conflicting = conditions(api.succeed("GET", f"{CRDS}/cogs.other.example.com"))
    assert conflicting == {"NamesAccepted": ("False", "ListKindConflict"), "Established": ("False", "NotAccepted")}
    api.succeed("DELETE", f"{CRDS}/gears.other.example.com")
    assert conditions(api.succeed("GET", f"{CRDS}/cogs.other.example.com"))["Established"][0] == "True"
    assert api.succeed("GET", "/apis/other.example.com/v1/cogs")["kind"] == "GearList"


async def test_servers_in_one_process_have_separate_definitions(api: InProcessApi):
    api.succeed("POST", CRDS, WIDGETS)
    other = InProcessApi()
    assert other("GET", WIDGET_PATH)[0] == 404
    assert "example.com" not in json.dumps(other.succeed("GET", "/apis"))
    assert "example.com" not in json.dumps(other.succeed("GET", "/openapi/v3"))
    assert "apis/example.com/v1" in json.loads(api.succeed("GET", "/openapi/v3"))["paths"]


async def test_definitions_and_objects_survive_a_restart(tmp_path):
    data_directory = DataDirectory(tmp_path)
    api = InProcessApi(data_directory=data_directory)
    api.succeed("POST", CRDS, WIDGETS)
    created = api.succeed("POST", WIDGET_PATH, widget("a", {"replicas": 3}))
    data_directory.close()
    data_directory = DataDirectory(tmp_path)
    restarted = InProcessApi(data_directory=data_directory)
    assert restarted.succeed("GET", f"{WIDGET_PATH}/a") == created
    assert restarted.succeed("GET", f"{CRDS}/widgets.example.com") == api.succeed("GET", f"{CRDS}/widgets.example.com")
    assert restarted("POST", WIDGET_PATH, widget("b", {"color": "pink"}))[0] == 422
    data_directory.close()


OLD = "request to convert CR from an invalid group/version: other.example.com/v1beta1"
INITIALIZING = f"storage is (re)initializing: failed to list other.example.com/v1, Kind=Gear: {OLD}"
GEARS = "/apis/other.example.com/v1/namespaces/default/gears"


def define_versions(api: InProcessApi, *names: str) -> None:
    """Serve these versions of gears, the last one stored, and state that no other version is stored."""
    defined = definition()
    defined["spec"]["scope"] = "Namespaced"
    defined["spec"]["versions"] = [definition_version(name, storage=name == names[-1]) for name in names]
    named = f"{CRDS}/{defined['metadata']['name']}"
    if api("POST", CRDS, defined)[0] == 409:
        api.succeed("PATCH", named, {"spec": defined["spec"]}, MERGE)
        api.succeed("PATCH", f"{named}/status", {"status": {"storedVersions": [names[-1]]}}, MERGE)


def definition_version(name: str, *, storage: bool) -> JSON:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}}


async def test_apply_fails_where_a_manager_has_a_removed_version(api: InProcessApi):
    define_versions(api, "v1beta1", "v1")
    gear = {"apiVersion": "other.example.com/v1beta1", "kind": "Gear", "metadata": {"name": "a"}, "spec": {"teeth": 1}}
    old_path, apply = f"{GEARS.replace('v1', 'v1beta1')}/a", "application/apply-patch+yaml"
    assert api("PATCH", f"{old_path}?fieldManager=old", gear, apply)[0] == 201
    define_versions(api, "v1")
    gear["apiVersion"] = "other.example.com/v1"
    for manager in ("old", "new"):
        status, failure = api("PATCH", f"{GEARS}/a?fieldManager={manager}", gear, apply)
        expected = "request to convert CR to an invalid group/version: other.example.com/v1beta1"
        assert (status, failure["message"]) == (500, expected)
    assert "managedFields" not in api.succeed("PATCH", f"{GEARS}/a", {"spec": {"teeth": 2}})["metadata"]
    assert api("PATCH", f"{GEARS}/a?fieldManager=old", gear, apply)[0] == 409  # managed again


def forget_migration(api: InProcessApi) -> None:
    """Store a gear in v1beta1, and remove this version from the definition."""
    define_versions(api, "v1beta1")
    api.create(
        GEARS.replace("v1", "v1beta1"),
        {"apiVersion": "other.example.com/v1beta1", "kind": "Gear", "metadata": {"name": "a"}},
    )
    define_versions(api, "v1beta1", "v1")
    api.succeed("GET", f"{GEARS}/a")
    define_versions(api, "v1")


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/a", 500, OLD),
        ("DELETE", "/a", 500, OLD),
        ("PATCH", "/a", 500, OLD),
        ("GET", "", 429, INITIALIZING),
        ("GET", "?watch=1", 429, INITIALIZING),
        ("GET", "?limit=1", 500, OLD),
        ("DELETE", "", 500, OLD),
    ],
)
async def test_object_of_a_removed_version_is_unreadable(
    api: InProcessApi, method: str, path: str, status: int, message: str
):
    forget_migration(api)
    code, content = api(method, f"{GEARS}{path}", {} if method == "PATCH" else None)
    assert (code, content["message"]) == (status, message)


async def test_new_objects_are_readable_beside_one_of_a_removed_version(api: InProcessApi):
    forget_migration(api)
    api.create(GEARS, {"apiVersion": "other.example.com/v1", "kind": "Gear", "metadata": {"name": "b"}})
    api.succeed("GET", f"{GEARS}/b")
    assert api("GET", f"{GEARS.replace('default', 'other')}?limit=1")[0] == 200


async def test_object_is_readable_when_its_version_returns(api: InProcessApi):
    forget_migration(api)
    define_versions(api, "v1beta1", "v1")
    assert api.succeed("GET", f"{GEARS}/a")["apiVersion"] == "other.example.com/v1"


async def test_migrated_object_is_readable_without_its_old_version(api: InProcessApi):
    define_versions(api, "v1beta1")
    old = {"apiVersion": "other.example.com/v1beta1", "kind": "Gear", "metadata": {"name": "a"}}
    api.create(GEARS.replace("v1", "v1beta1"), old)
    define_versions(api, "v1beta1", "v1")
    api.succeed("PATCH", f"{GEARS}/a", {"metadata": {"labels": {"migrated": "yes"}}})
    define_versions(api, "v1")
    api.succeed("GET", f"{GEARS}/a")


async def test_definition_with_unreadable_objects_is_not_removed(api: InProcessApi):
    forget_migration(api)
    name = definition()["metadata"]["name"]
    api.succeed("DELETE", f"{CRDS}/{name}")
    condition = api.succeed("GET", f"{CRDS}/{name}")["status"]["conditions"][-1]
    assert (condition["type"], condition["reason"]) == ("Terminating", "InstanceDeletionFailed")
    assert condition["message"] == f"could not list instances: {INITIALIZING}"


async def test_resource_quota_counts_custom_resources(api: InProcessApi):
    api.succeed("POST", CRDS, WIDGETS)
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/widgets.example.com": "1"}}}
    api.succeed("POST", "/api/v1/namespaces/default/resourcequotas", quota)
    api.succeed("POST", WIDGET_PATH, widget("a"))
    status, content = api("POST", WIDGET_PATH, widget("b"))
    assert status == 403
    assert "exceeded quota: q, requested: count/widgets.example.com=1" in content["message"]


async def test_built_in_rules_do_not_apply_to_a_kind_of_the_same_name(api: InProcessApi):
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


async def test_list_applies_new_defaults_and_drops_removed_fields(api: InProcessApi):
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    api.succeed("POST", CRDS, definition(schema={"openAPIV3Schema": schema}))
    gear = {"apiVersion": "other.example.com/v1", "kind": "Gear", "metadata": {"name": "g"}, "a": "x"}
    created = api.succeed("POST", "/apis/other.example.com/v1/gears", gear)
    new_schema = {"type": "object", "properties": {"b": {"type": "string", "default": "new"}}}
    (version,) = definition(schema={"openAPIV3Schema": new_schema})["spec"]["versions"]
    api.succeed("PATCH", f"{CRDS}/gears.other.example.com", {"spec": {"versions": [version]}}, MERGE)
    (listed,) = api.succeed("GET", "/apis/other.example.com/v1/gears")["items"]
    assert (listed.get("a"), listed["b"]) == (None, "new")
    assert listed["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]


async def test_create_ignores_the_status_and_applies_its_default(api: InProcessApi):
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


async def test_unapproved_protected_group_sets_a_condition(api: InProcessApi):
    gears = definition(group="gears.k8s.io")
    gears["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, an experiment"}
    api.succeed("POST", CRDS, gears)
    conditions_by_type = conditions(api.succeed("GET", f"{CRDS}/gears.gears.k8s.io"))
    assert conditions_by_type["KubernetesAPIApprovalPolicyConformant"] == ("False", "UnapprovedAnnotation")
    assert conditions_by_type["Established"][0] == "True"


async def test_protobuf_openapi_document_has_custom_resources(api: InProcessApi):
    api.succeed("POST", CRDS, WIDGETS)
    accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    response = api.respond("GET", "/openapi/v2", accept=accept)
    assert response.status == 200
    assert isinstance(response.body, bytes)
    definitions = next(value for number, _, value in wire_values(response.body) if number == 9)
    named_schemas = [
        {number: value for number, _, value in wire_values(named_schema)}
        for _, _, named_schema in wire_values(definitions)
    ]
    (widget_schema,) = [fields[2] for fields in named_schemas if fields[1] == b"com.example.v1.Widget"]
    properties = next(value for number, _, value in wire_values(widget_schema) if number == 25)
    names = {
        value
        for _, _, named_schema in wire_values(properties)
        for number, _, value in wire_values(named_schema)
        if number == 1
    }
    assert names == {b"apiVersion", b"kind", b"metadata", b"spec", b"status"}


async def test_update_without_changes_stores_an_object_in_a_new_storage_version(api: InProcessApi):
    api.create(CRDS, definition())
    path = "/apis/other.example.com/v1/gears"
    created = api.create(path, {"apiVersion": "other.example.com/v1", "kind": "Gear", "metadata": {"name": "g"}})
    patch, gear = {"metadata": {"labels": None}}, f"{path}/g"
    unchanged = api("PATCH", gear, patch, MERGE)[1]
    assert unchanged["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
    old = definition()["spec"]["versions"][0]
    versions = [{**old, "storage": False}, {**old, "name": "v2", "storage": True}]
    assert api("PATCH", f"{CRDS}/gears.other.example.com", {"spec": {"versions": versions}}, MERGE)[0] == 200
    stored = api("PATCH", gear, patch, MERGE)[1]
    assert stored["metadata"]["resourceVersion"] != created["metadata"]["resourceVersion"]
    assert api("PATCH", gear, patch, MERGE)[1]["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]
