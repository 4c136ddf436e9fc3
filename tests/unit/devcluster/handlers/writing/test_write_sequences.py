"""Effects of a write on later requests: resourceVersion, generation, field ownership and deletion, as in v1.36."""

from __future__ import annotations

from typing import Any

import pytest

from support.apiserver.api_requests import InProcessApi

JSON = dict[str, Any]
CORE = "/api/v1/namespaces/default"
APPS = "/apis/apps/v1/namespaces/default"
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
STRATEGIC, OPERATIONS = "application/strategic-merge-patch+json", "application/json-patch+json"
TEMPLATE: JSON = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
TEMPLATES = "deprecated.daemonset.template.generation"


@pytest.fixture
async def api() -> InProcessApi:
    return InProcessApi()


def patch(api: InProcessApi, path: str, body: Any, media: str = MERGE) -> JSON:
    status, obj = api("PATCH", path, body, media)
    assert status in (200, 201), obj
    return obj


def version(obj: JSON) -> int:
    return int(obj["metadata"]["resourceVersion"])


def create(api: InProcessApi, path: str, name: str, body: JSON, **metadata: Any) -> str:
    api.create(path, {"metadata": {"name": name, **metadata}, **body})
    return f"{path}/{name}"


def deployment(*containers: str, **more: Any) -> JSON:
    template = {**TEMPLATE, "spec": {"containers": [{"name": name, "image": "i"} for name in containers]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template, **more}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}


async def test_applied_items_keep_applied_order_among_other_items(api: InProcessApi):
    path = f"{APPS}/deployments/d"

    def order(manager: str, *containers: str) -> str:
        obj = patch(api, f"{path}?fieldManager={manager}&force=true", deployment(*containers), APPLY)
        return "".join(container["name"] for container in obj["spec"]["template"]["spec"]["containers"])

    assert order("one", *"bac") == "bac"
    assert order("two", *"za") == "bzac"
    assert order("one", *"ca") == "zca"
    assert order("one", *"qcab") == "zqcab"


async def test_apply_removes_parent_without_owned_fields(api: InProcessApi):
    path = f"{CORE}/replicationcontrollers/r"
    manifest = {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "r"}}
    spec = {"replicas": 1, "selector": {"a": "b"}, "template": TEMPLATE}
    patch(api, f"{path}?fieldManager=one", {**manifest, "spec": spec}, APPLY)
    patch(api, f"{path}?fieldManager=two&force=true", {**manifest, "spec": {"replicas": 2}}, APPLY)
    status, answer = api("PATCH", f"{path}?fieldManager=one", manifest, APPLY)
    assert (status, [cause["field"] for cause in answer["details"]["causes"]]) == (
        422,
        ["spec.selector", "spec.template"],  # not spec.template.spec.containers
    )


async def test_applied_null_struct_sets_none_of_its_fields(api: InProcessApi):
    path = f"{APPS}/deployments/d?fieldManager=one&force=true"
    patch(api, path, deployment("c"), APPLY)
    strategy = {"type": "Recreate", "rollingUpdate": None}
    status, answer = api("PATCH", path, deployment("c", strategy=strategy), APPLY)
    assert (status, answer["details"]["causes"][0]["field"]) == (422, "spec.strategy.rollingUpdate")


async def test_owner_reference_conflicts_as_a_whole(api: InProcessApi):
    def owner(**more: Any) -> JSON:
        references = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u", **more}]
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "ownerReferences": references}}

    path = f"{CORE}/configmaps/c"
    patch(api, f"{path}?fieldManager=one", owner(), APPLY)
    status, answer = api("PATCH", f"{path}?fieldManager=two", owner(controller=True), APPLY)
    assert (status, answer["details"]["causes"][0]["field"]) == (409, '.metadata.ownerReferences[uid="u"]')


async def test_duplicate_items_remain_until_applied(api: InProcessApi):
    path = f"{APPS}/deployments"
    body = deployment("c")
    env = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}, {"name": "B", "value": "3"}]
    body["spec"]["template"]["spec"]["containers"][0]["env"] = env
    api("POST", f"{path}?fieldManager=creator", body)

    def applied(name: str) -> tuple[list[str], bool]:
        body["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": name, "value": "9"}]
        obj = patch(api, f"{path}/d?fieldManager=me&force=true", body, APPLY)
        [creator] = [entry for entry in obj["metadata"]["managedFields"] if entry["manager"] == "creator"]
        [container] = obj["spec"]["template"]["spec"]["containers"]
        return [entry.get("value", "") for entry in container["env"]], 'k:{"name":"A"}' in str(creator)

    assert applied("B") == (["1", "2", "9"], True)
    assert applied("A") == (["9", ""], False)  # the name of B remains, which the creator still owns


async def test_duplicate_keys_of_configuration_are_rejected_last(api: InProcessApi):
    path = f"{CORE}/configmaps/c?fieldManager=one&fieldValidation=Strict"
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"
    status, answer = api("PATCH", path, f"{head}data: {{a: x, a: 1}}", APPLY)
    assert (status, ".data.a: expected string" in answer["message"]) == (500, True)
    status, answer = api("PATCH", path, f"{head}data: {{a: x, a: z}}", APPLY)
    assert (status, "already set in map" in answer["message"]) == (400, True)


async def test_repeated_apply_of_completed_object_writes_nothing(api: InProcessApi):
    path = f"{CORE}/secrets/s?fieldManager=one"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}}
    first = patch(api, path, secret, APPLY)
    first_entry = first["metadata"]["managedFields"][0]
    again = patch(api, path, secret, APPLY)
    assert (version(again), again["metadata"]["managedFields"][0]) == (version(first), first_entry)


async def test_first_update_of_claim_is_written_without_changes(api: InProcessApi):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = create(api, f"{CORE}/persistentvolumeclaims", "c", {"spec": spec})
    versions = [version(api("GET", claim)[1]), *(version(patch(api, claim, {})) for _ in range(2))]
    assert versions[0] < versions[1] == versions[2]
    config_map = create(api, f"{CORE}/configmaps", "c", {})
    assert version(api("GET", config_map)[1]) == version(patch(api, config_map, {}))


async def test_daemon_set_counts_template_generations(api: InProcessApi):
    body = {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}}
    path = create(api, f"{APPS}/daemonsets", "d", body)
    changes = (
        (path, {}),
        (path, {"spec": {"minReadySeconds": 3}}),
        (path, {"spec": {"template": {"spec": {"nodeSelector": {"x": "y"}}}}}),
        (path, {"metadata": {"annotations": {TEMPLATES: "9"}}}),
        (path, {"metadata": {"annotations": None}}),
        (f"{path}/status", {"metadata": {"annotations": None}}),
    )
    counts = [patch(api, target, change)["metadata"]["annotations"][TEMPLATES] for target, change in changes]
    assert counts == ["1", "1", "2", "2", "2", "2"]


async def test_endpoint_slice_labels_increase_generation(api: InProcessApi):
    path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    slice_path = create(api, path, "s", {"addressType": "IPv4", "endpoints": [], "ports": []})
    answer = patch(api, slice_path, {"metadata": {"labels": {"a": "b"}}})
    assert (answer["metadata"]["generation"], answer["endpoints"], answer["ports"]) == (2, None, None)
    assert patch(api, slice_path, {"metadata": {"annotations": {"a": "b"}}})["metadata"]["generation"] == 2
    role = create(api, "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", "r", {"rules": []})
    assert api("GET", role)[1]["rules"] is None


async def test_update_of_absent_quota_does_not_create_it(api: InProcessApi):
    assert api("PUT", f"{CORE}/resourcequotas/q", {"metadata": {"name": "q"}})[0] == 404
    assert api("PUT", f"{CORE}/limitranges/l", {"metadata": {"name": "l"}, "spec": {"limits": []}})[0] == 201


async def test_negative_status_replicas_return_all_causes(api: InProcessApi):
    body = {"spec": {"serviceName": "x", "selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}}
    path = create(api, f"{APPS}/statefulsets", "s", body)
    status, answer = api("PATCH", f"{path}/status", {"status": {"replicas": -1}}, MERGE)
    assert (status, len(answer["details"]["causes"])) == (422, 5)


async def test_incomplete_budget_conditions_are_rejected(api: InProcessApi):
    path = create(api, "/apis/policy/v1/namespaces/default/poddisruptionbudgets", "b", {})
    condition = {"type": "X", "status": "True", "reason": "R", "lastTransitionTime": "2024-01-01T00:00:00Z"}
    for change, field in (
        ({"status": "maybe"}, "status"),
        ({"reason": ""}, "reason"),
        ({"reason": "not so"}, "reason"),
        ({"lastTransitionTime": None}, "lastTransitionTime"),
        ({"type": "a b"}, "type"),
        ({"observedGeneration": -1}, "observedGeneration"),
        ({"message": "x" * 40_000}, "message"),
    ):
        status, answer = api("PATCH", f"{path}/status", {"status": {"conditions": [{**condition, **change}]}}, MERGE)
        assert (status, answer["details"]["causes"][0]["field"]) == (422, f"status.conditions[0].{field}")
    assert api("PATCH", f"{path}/status", {"status": {"conditions": [condition, condition]}}, MERGE)[0] == 422
    assert api("PATCH", f"{path}/status", {"status": {"conditions": [condition]}}, MERGE)[0] == 200


async def test_apply_conflicts_with_owner_of_empty_parent(api: InProcessApi):
    path, manifest = f"{CORE}/configmaps/c", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    empty = {**manifest, "metadata": {"name": "c", "annotations": {}}}
    full = {**manifest, "metadata": {"name": "c", "annotations": {"a": "b"}}}
    patch(api, f"{path}?fieldManager=one", empty, APPLY)
    status, answer = api("PATCH", f"{path}?fieldManager=two", full, APPLY)
    assert (status, [cause["field"] for cause in answer["details"]["causes"]]) == (409, [".metadata.annotations"])
    patch(api, f"{path}?fieldManager=two&force=true", full, APPLY)


async def test_fields_removed_by_apply_never_conflict(api: InProcessApi):
    path = f"{CORE}/configmaps"
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    api("POST", f"{path}?fieldManager=one", {**manifest, "data": {"a": "1", "b": "2"}})
    patch(api, f"{path}/c?fieldManager=two&force=true", {**manifest, "data": {"b": "3"}}, APPLY)
    assert patch(api, f"{path}/c?fieldManager=two", {**manifest, "data": {}}, APPLY)["data"] == {"a": "1"}


async def test_apply_without_metadata_fails_if_manager_owned_metadata(api: InProcessApi):
    path, manifest = (
        f"{CORE}/configmaps/c?fieldManager=one",
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}},
    )
    patch(api, path, {**manifest, "metadata": {"name": "c", "labels": {"a": "b"}}}, APPLY)
    status, answer = api("PATCH", path, manifest, APPLY)
    assert (status, "undeterminable" in answer["message"]) == (400, True)
    patch(api, path, {**manifest, "metadata": {}}, APPLY)
    patch(api, path, manifest, APPLY)


async def test_applied_parent_of_empty_lists_is_not_owned(api: InProcessApi):
    path = f"{APPS}/deployments/d?fieldManager="
    patch(api, f"{path}one", deployment("c"), APPLY)
    body = deployment()
    del body["spec"]["selector"], body["spec"]["template"]["metadata"]
    body["spec"]["paused"] = True
    entries = patch(api, f"{path}two", body, APPLY)["metadata"]["managedFields"]
    [two] = [entry["fieldsV1"] for entry in entries if entry["manager"] == "two"]
    assert two == {"f:spec": {"f:paused": {}}}


async def test_rejected_daemon_set_update_keeps_template_generation(api: InProcessApi):
    body = {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}}
    path = create(api, f"{APPS}/daemonsets", "d", body)
    invalid = {"spec": {"template": {"spec": {"containers": []}}}}
    assert api("PATCH", path, invalid, MERGE)[0] == 422
    changed = {"spec": {"template": {"spec": {"nodeSelector": {"x": "y"}}}}}
    assert api("PATCH", f"{path}?dryRun=All", changed, MERGE)[1]["metadata"]["annotations"][TEMPLATES] == "2"
    assert api("GET", path)[1]["metadata"]["annotations"][TEMPLATES] == "1"


async def test_create_of_existing_object_returns_warnings(api: InProcessApi):
    body = deployment("c")
    body["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "A"}, {"name": "A"}]
    for status in (201, 409):
        assert api("POST", f"{APPS}/deployments", body)[0] == status
        assert ["hides previous definition" in warning for warning in api.warnings] == [True]


# --- deletions --------------------------------------------------------------------------------------------------------


async def test_background_delete_removes_last_finalizer_in_one_write(api: InProcessApi):
    path = f"{APPS}/replicasets"
    create(api, path, "r", {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}})
    waiting = api("DELETE", f"{path}/r", {"propagationPolicy": "Foreground"})[1]
    assert api("DELETE", f"{path}/r", {"propagationPolicy": "Background"})[0] == 200
    assert int(api("GET", path)[1]["metadata"]["resourceVersion"]) == version(waiting) + 1


async def test_second_eviction_writes_nothing(api: InProcessApi):
    pod = create(api, f"{CORE}/pods", "p", {"spec": TEMPLATE["spec"]}, finalizers=["a.b/c"])
    eviction = {"metadata": {"name": "p"}}
    versions = []
    for _ in range(2):
        assert api("POST", f"{pod}/eviction", eviction)[0] == 201
        versions.append(version(api("GET", pod)[1]))
    assert versions[0] == versions[1]


async def test_sent_deletion_timestamp_is_ignored_but_owned(api: InProcessApi):
    path = create(api, f"{CORE}/configmaps", "c", {}, finalizers=["a.b/c"])
    before = api("DELETE", path)[1]["metadata"]["deletionTimestamp"]
    after = patch(api, path, {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}})["metadata"]
    assert after["deletionTimestamp"] == before
    assert any("f:deletionTimestamp" in entry["fieldsV1"]["f:metadata"] for entry in after["managedFields"])


# --- patches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("media", "body", "status", "message"),
    [
        (STRATEGIC, {"spec": {"strategy": {"$retainKeys": ["rollingUpdate"], "type": "Recreate"}}}, 400, "retainKeys"),
        (STRATEGIC, {"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": None}}}, 200, ""),
        (
            STRATEGIC,
            {"spec": {"template": {"spec": {"containers": [{"name": "c", "$patch": "merge"}]}}}},
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (MERGE, {"apiVersion": None}, 400, "the name of the object (d based on URL) was undeterminable"),
        (
            OPERATIONS,
            '[{"op":"add","op":"add","path":"/spec/paused","value":true}]',
            422,
            'json patch duplicate field "[0].op"',
        ),
        (STRATEGIC, {"spec": {"b": 1, "template": {"a": 1}}}, 422, 'unknown field "spec.b", unknown field "spec.tem'),
        ("Application/Merge-Patch+JSON", {}, 415, ""),
    ],
)
async def test_patch_responses_match_kubernetes(api: InProcessApi, media: str, body: Any, status: int, message: str):
    api("POST", f"{APPS}/deployments", deployment("c"))
    mode = "Strict" if status == 422 else "Warn"
    code, answer = api("PATCH", f"{APPS}/deployments/d?fieldValidation={mode}", body, media)
    assert (code, message in answer.get("message", "")) == (status, True), answer


async def test_error_of_time_with_seven_digits_shows_the_seventh(api: InProcessApi):
    body = {"metadata": {"name": "l"}, "spec": {"renewTime": "2024-01-01T00:00:00.1234567Z"}}
    status, answer = api("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", body)
    assert (status, 'cannot parse "7Z" as "Z07:00"' in answer["message"]) == (400, True)


@pytest.mark.parametrize(
    ("media", "body", "status", "message"),
    [
        ("application/json;;", "{}", 415, "accepted media types"),
        ("application/json; charset=utf-8;", '{"metadata":{"name":"c"}}', 201, ""),
        ('application/json; a="b c"', '{"metadata":{"name":"c"}}', 201, ""),
        ("application/json", "[" * 11_000 + "]" * 11_000, 400, "json parse error: exceeded max depth"),
        ("application/json", '{"kind":"Status","apiVersion":"v1"}', 400, "converting (v1.Status) to (core.ConfigMap)"),
        ("application/json", '{"kind":"List","apiVersion":"v1"}', 400, "converting (v1.List) to (core.ConfigMap)"),
        ("application/json", '{"kind":"List","apiVersion":"apps/v1"}', 400, 'no kind "List" is registered'),
        ("application/vnd.kubernetes.protobuf", "k8s\0", 400, "empty body"),
    ],
)
async def test_body_responses_match_kubernetes(api: InProcessApi, media: str, body: str, status: int, message: str):
    code, answer = api("POST", f"{CORE}/configmaps", body, media)
    assert (code, message in answer.get("message", "")) == (status, True), answer


# --- empty values -----------------------------------------------------------------------------------------------------

POLICIES = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


async def test_messages_distinguish_empty_list_from_null(api: InProcessApi):
    path = create(api, f"{CORE}/pods", "p", {"spec": {"containers": [{"name": "c", "image": "i"}]}})
    container = {"name": "c", "image": "i", "args": [], "command": ["x"]}
    for verb, media in (("PUT", "application/json"), ("PATCH", MERGE)):
        message = api(verb, path, {"metadata": {"name": "p"}, "spec": {"containers": [container]}}, media)[1]["message"]
        assert '-   "Args": null,\n' in message
        assert '+   "Args": [],\n' in message


async def test_empty_network_policy_list_increases_generation(api: InProcessApi):
    spec = {"podSelector": {}, "policyTypes": ["Ingress"]}
    path = create(api, POLICIES, "n", {"spec": spec})
    assert api("PUT", path, {"metadata": {"name": "n"}, "spec": spec})[1]["metadata"]["generation"] == 1
    updated = api("PUT", path, {"metadata": {"name": "n"}, "spec": {**spec, "egress": []}})[1]
    assert updated["metadata"]["generation"] == 2
    assert "egress" not in updated["spec"]


async def test_required_empty_lists_are_returned_as_null(api: InProcessApi):
    volume = {"name": "v", "projected": {"sources": []}}
    job_spec = {"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never", "volumes": [volume]}}}
    create(api, JOBS, "j", {"spec": {**job_spec, "podFailurePolicy": {"rules": []}}})
    spec = api("GET", f"{JOBS}/j")[1]["spec"]
    assert spec["podFailurePolicy"] == {"rules": None}
    assert spec["template"]["spec"]["volumes"][0]["projected"]["sources"] is None


# --- special kinds ----------------------------------------------------------------------------------------------------

NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
NEW_EVENT: JSON = {
    "eventTime": "2024-01-01T00:00:00.000000Z",
    "type": "Normal",
    "reportingController": "a.b/c",
    "reportingInstance": "i",
    "action": "a",
    "reason": "r",
    "regarding": {"namespace": "default"},
}


async def test_event_is_validated_by_requested_group(api: InProcessApi):
    create(api, NEW_EVENTS, "e", NEW_EVENT)
    message = api("PATCH", f"{NEW_EVENTS}/e", {"note": "other"}, MERGE)[1]["message"]
    assert message == 'Event "e" is invalid: message: Invalid value: "other": field is immutable'
    assert patch(api, f"{CORE}/events/e", {"message": "other"})["message"] == "other"
    message = api("POST", NEW_EVENTS, {"metadata": {"name": "f"}, "type": "Normal"})[1]["message"]
    assert message == 'Event "f" is invalid: eventTime: Required value'
    assert api("POST", f"{CORE}/events", {"metadata": {"name": "f"}})[0] == 201


async def test_event_errors_name_requested_group(api: InProcessApi):
    create(api, NEW_EVENTS, "e", NEW_EVENT)
    old = {"involvedObject": {"namespace": "default"}}
    for path, name, event in ((NEW_EVENTS, "events.events.k8s.io", NEW_EVENT), (f"{CORE}/events", "events", old)):
        body = {**event, "metadata": {"name": "e"}}
        assert api("POST", path, body)[1]["message"] == f'{name} "e" already exists'
        body["metadata"]["resourceVersion"] = "1"
        assert api("PUT", f"{path}/e", body)[1]["message"].startswith(f'Operation cannot be fulfilled on {name} "e": ')


async def test_event_managed_fields_have_group_of_last_write(api: InProcessApi):
    create(api, NEW_EVENTS, "e", NEW_EVENT)
    event = patch(api, f"{CORE}/events/e?fieldManager=x", {"metadata": {"labels": {"a": "b"}}})
    assert [entry["apiVersion"] for entry in event["metadata"]["managedFields"]] == ["v1"]


async def test_status_of_absent_service_creates_it_without_address(api: InProcessApi):
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    path = f"{CORE}/services/s/status?fieldManager=x"
    status, refused = api("PATCH", path, service, APPLY)
    assert (status, refused["message"]) == (422, 'Service "s" is invalid: spec.ports: Required value')
    conditions = [{"type": "A", "status": "True", "reason": "r", "message": "", "lastTransitionTime": None}]
    body = {**service, "spec": {"ports": [{"port": 1}]}, "status": {"conditions": conditions}}
    status, created = api("PUT", path, body)
    assert (status, created["status"], "clusterIP" in created["spec"]) == (201, {"loadBalancer": {}}, False)
    assert list(created["metadata"]["managedFields"][0]["fieldsV1"]) == ["f:status"]


async def test_status_apply_to_absent_pod_is_not_validated(api: InProcessApi):
    unknown = {"apiVersion": "v1", "kind": "Guess"}
    assert api("PATCH", f"{CORE}/pods/p/status?fieldManager=x", unknown, APPLY)[0] == 404


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ({"path": "/kind", "value": {}}, "json: cannot unmarshal object into Go struct field .kind of type string"),
        (
            {"path": "/apiVersion", "value": 1},
            "cannot unmarshal number into Go struct field .apiVersion of type string",
        ),
        ({"path": "/apiVersion", "value": "a/b/c"}, "unexpected GroupVersion string: a/b/c"),
    ],
)
async def test_patched_kind_is_decoded_like_a_body(api: InProcessApi, operation: JSON, message: str):
    path = create(api, f"{CORE}/configmaps", "c", {})
    status, answer = api("PATCH", path, [{"op": "add", **operation}], OPERATIONS)
    assert (status, answer["message"].endswith(message)) == (422, True), answer["message"]


async def test_patch_may_set_kind_to_null(api: InProcessApi):
    path = create(api, f"{CORE}/configmaps", "c", {})
    assert patch(api, path, [{"op": "add", "path": "/kind", "value": None}], OPERATIONS)["kind"] == "ConfigMap"
    status, answer = api("PATCH", path, [{"op": "add", "path": "/apiVersion", "value": None}], OPERATIONS)
    assert (status, api.warnings) == (400, ['299 - "unknown field \\"metadata\\""']), answer


async def test_patch_cannot_remove_required_resource_version(api: InProcessApi):
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    path = create(api, budgets, "b", {"spec": {"selector": {}}})
    status, answer = api("PATCH", path, {"metadata": {"resourceVersion": None}}, MERGE)
    assert (status, answer["details"]["causes"][0]["field"]) == (422, "metadata.resourceVersion")
    assert patch(api, path, {"metadata": {"labels": {"a": "b"}}})["metadata"]["labels"] == {"a": "b"}


async def test_status_owner_in_second_version_has_status_subresource(api: InProcessApi):
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    autoscalers = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
    path = create(api, autoscalers, "h", {"spec": {"maxReplicas": 2, "scaleTargetRef": target}})
    autoscaler = patch(api, f"{path}/status?fieldManager=s", {"status": {"currentReplicas": 1, "desiredReplicas": 2}})
    assert {entry["manager"]: entry.get("subresource") for entry in autoscaler["metadata"]["managedFields"]} == {
        "unknown": None,
        "s": "status",
    }


async def test_immutable_data_cannot_become_empty(api: InProcessApi):
    path = create(api, f"{CORE}/secrets", "s", {"immutable": True})
    assert api("PATCH", path, {"data": {}}, MERGE)[1]["details"]["causes"][0]["field"] == "data"
    path = create(api, f"{CORE}/configmaps", "c", {"immutable": True})
    assert api("PATCH", path, {"binaryData": {}}, MERGE)[1]["details"]["causes"][0]["field"] == "binaryData"
    patch(api, path, {"data": {}})  # data is empty by default


async def test_applied_scale_leaves_one_entry_per_manager(api: InProcessApi):
    body = {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE, "replicas": 2}}
    path = create(api, f"{APPS}/replicasets", "r", body)
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "r"}, "spec": {"replicas": 2}}
    patch(api, f"{path}/scale?fieldManager=unknown", scale, APPLY)
    applied = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r"}}
    replica_set = patch(api, f"{path}?fieldManager=x", {**applied, "spec": {"minReadySeconds": 1}}, APPLY)
    managers = [(entry["manager"], entry["operation"]) for entry in replica_set["metadata"]["managedFields"]]
    assert managers == [("unknown", "Apply"), ("x", "Apply"), ("unknown", "Update")]
