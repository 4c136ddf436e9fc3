"""What one write leaves for the next, as kube-apiserver v1.36 has it: versions, generations, owners, deletions."""

from __future__ import annotations

from typing import Any

import pytest

from support.api_requests import InProcessApi

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
    status, answer = api("PATCH", path, body, media)
    assert status in (200, 201), answer
    return answer


def version(answer: JSON) -> int:
    return int(answer["metadata"]["resourceVersion"])


def made(api: InProcessApi, path: str, name: str, body: JSON, **metadata: Any) -> str:
    api.create(path, {"metadata": {"name": name, **metadata}, **body})
    return f"{path}/{name}"


def deployment(*containers: str, **more: Any) -> JSON:
    template = {**TEMPLATE, "spec": {"containers": [{"name": each, "image": "i"} for each in containers]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template, **more}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}


async def test_applied_items_come_in_the_order_wished_and_the_others_around_them(api: InProcessApi):
    path = f"{APPS}/deployments/d"

    def order(manager: str, *containers: str) -> str:
        answer = patch(api, f"{path}?fieldManager={manager}&force=true", deployment(*containers), APPLY)
        return "".join(each["name"] for each in answer["spec"]["template"]["spec"]["containers"])

    assert order("one", *"bac") == "bac"
    assert order("two", *"za") == "bzac"
    assert order("one", *"ca") == "zca"
    assert order("one", *"qcab") == "zqcab"


async def test_a_parent_in_which_nobody_owns_anything_goes_with_what_else_is_in_it(api: InProcessApi):
    path = f"{CORE}/replicationcontrollers/r"
    whole = {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "r"}}
    spec = {"replicas": 1, "selector": {"a": "b"}, "template": TEMPLATE}
    patch(api, f"{path}?fieldManager=one", {**whole, "spec": spec}, APPLY)
    patch(api, f"{path}?fieldManager=two&force=true", {**whole, "spec": {"replicas": 2}}, APPLY)
    status, answer = api("PATCH", f"{path}?fieldManager=one", whole, APPLY)
    assert (status, [each["field"] for each in answer["details"]["causes"]]) == (
        422,
        ["spec.selector", "spec.template"],  # not spec.template.spec.containers
    )


async def test_null_in_place_of_a_struct_wishes_nothing_of_its_fields(api: InProcessApi):
    path = f"{APPS}/deployments/d?fieldManager=one&force=true"
    patch(api, path, deployment("c"), APPLY)
    strategy = {"type": "Recreate", "rollingUpdate": None}
    status, answer = api("PATCH", path, deployment("c", strategy=strategy), APPLY)
    assert (status, answer["details"]["causes"][0]["field"]) == (422, "spec.strategy.rollingUpdate")


async def test_an_owner_reference_is_owned_whole_and_so_conflicts(api: InProcessApi):
    def owner(**more: Any) -> JSON:
        references = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u", **more}]
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "ownerReferences": references}}

    path = f"{CORE}/configmaps/c"
    patch(api, f"{path}?fieldManager=one", owner(), APPLY)
    status, answer = api("PATCH", f"{path}?fieldManager=two", owner(controller=True), APPLY)
    assert (status, answer["details"]["causes"][0]["field"]) == (409, '.metadata.ownerReferences[uid="u"]')


async def test_an_item_that_is_there_twice_stays_so_until_it_is_wished(api: InProcessApi):
    path = f"{APPS}/deployments"
    body = deployment("c")
    env = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}, {"name": "B", "value": "3"}]
    body["spec"]["template"]["spec"]["containers"][0]["env"] = env
    api("POST", f"{path}?fieldManager=creator", body)

    def applied(name: str) -> tuple[list[str], bool]:
        body["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": name, "value": "9"}]
        answer = patch(api, f"{path}/d?fieldManager=me&force=true", body, APPLY)
        [creator] = [each for each in answer["metadata"]["managedFields"] if each["manager"] == "creator"]
        [container] = answer["spec"]["template"]["spec"]["containers"]
        return [each.get("value", "") for each in container["env"]], 'k:{"name":"A"}' in str(creator)

    assert applied("B") == (["1", "2", "9"], True)
    assert applied("A") == (["9", ""], False)  # B keeps its name, which is still the creator's


async def test_repeated_keys_of_a_configuration_are_refused_after_all_else(api: InProcessApi):
    path = f"{CORE}/configmaps/c?fieldManager=one&fieldValidation=Strict"
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"
    status, answer = api("PATCH", path, f"{head}data: {{a: x, a: 1}}", APPLY)
    assert (status, ".data.a: expected string" in answer["message"]) == (500, True)
    status, answer = api("PATCH", path, f"{head}data: {{a: x, a: z}}", APPLY)
    assert (status, "already set in map" in answer["message"]) == (400, True)


async def test_applying_again_what_a_server_completes_writes_nothing(api: InProcessApi):
    path = f"{CORE}/secrets/s?fieldManager=one"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}}
    first = patch(api, path, secret, APPLY)
    first_owned = first["metadata"]["managedFields"][0]
    again = patch(api, path, secret, APPLY)
    assert (version(again), again["metadata"]["managedFields"][0]) == (version(first), first_owned)


async def test_the_first_write_to_a_claim_is_one_though_it_changes_nothing(api: InProcessApi):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = made(api, f"{CORE}/persistentvolumeclaims", "c", {"spec": spec})
    versions = [version(api("GET", claim)[1]), *(version(patch(api, claim, {})) for _ in range(2))]
    assert versions[0] < versions[1] == versions[2]
    plain = made(api, f"{CORE}/configmaps", "c", {})
    assert version(api("GET", plain)[1]) == version(patch(api, plain, {}))


async def test_a_daemon_set_counts_its_templates(api: InProcessApi):
    body = {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}}
    path = made(api, f"{APPS}/daemonsets", "d", body)
    changes = (
        (path, {}),
        (path, {"spec": {"minReadySeconds": 3}}),
        (path, {"spec": {"template": {"spec": {"nodeSelector": {"x": "y"}}}}}),
        (path, {"metadata": {"annotations": {TEMPLATES: "9"}}}),
        (path, {"metadata": {"annotations": None}}),
        (f"{path}/status", {"metadata": {"annotations": None}}),
    )
    counts = [patch(api, where, change)["metadata"]["annotations"][TEMPLATES] for where, change in changes]
    assert counts == ["1", "1", "2", "2", "2", "2"]


async def test_labels_of_an_endpoint_slice_are_a_new_generation_and_empty_lists_are_none(api: InProcessApi):
    path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    slice_path = made(api, path, "s", {"addressType": "IPv4", "endpoints": [], "ports": []})
    answer = patch(api, slice_path, {"metadata": {"labels": {"a": "b"}}})
    assert (answer["metadata"]["generation"], answer["endpoints"], answer["ports"]) == (2, None, None)
    assert patch(api, slice_path, {"metadata": {"annotations": {"a": "b"}}})["metadata"]["generation"] == 2
    role = made(api, "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", "r", {"rules": []})
    assert api("GET", role)[1]["rules"] is None


async def test_a_quota_is_not_created_by_an_update(api: InProcessApi):
    assert api("PUT", f"{CORE}/resourcequotas/q", {"metadata": {"name": "q"}})[0] == 404
    assert api("PUT", f"{CORE}/limitranges/l", {"metadata": {"name": "l"}, "spec": {"limits": []}})[0] == 201


async def test_a_status_below_zero_is_told_with_all_it_is_below(api: InProcessApi):
    body = {"spec": {"serviceName": "x", "selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}}
    path = made(api, f"{APPS}/statefulsets", "s", body)
    status, answer = api("PATCH", f"{path}/status", {"status": {"replicas": -1}}, MERGE)
    assert (status, len(answer["details"]["causes"])) == (422, 5)


async def test_conditions_of_a_budget_are_whole(api: InProcessApi):
    path = made(api, "/apis/policy/v1/namespaces/default/poddisruptionbudgets", "b", {})
    whole = {"type": "X", "status": "True", "reason": "R", "lastTransitionTime": "2024-01-01T00:00:00Z"}
    for wrong, field in (
        ({"status": "maybe"}, "status"),
        ({"reason": ""}, "reason"),
        ({"reason": "not so"}, "reason"),
        ({"lastTransitionTime": None}, "lastTransitionTime"),
        ({"type": "a b"}, "type"),
        ({"observedGeneration": -1}, "observedGeneration"),
        ({"message": "x" * 40_000}, "message"),
    ):
        status, answer = api("PATCH", f"{path}/status", {"status": {"conditions": [{**whole, **wrong}]}}, MERGE)
        assert (status, answer["details"]["causes"][0]["field"]) == (422, f"status.conditions[0].{field}")
    assert api("PATCH", f"{path}/status", {"status": {"conditions": [whole, whole]}}, MERGE)[0] == 422
    assert api("PATCH", f"{path}/status", {"status": {"conditions": [whole]}}, MERGE)[0] == 200


async def test_what_an_apply_adds_conflicts_with_who_owns_it_empty(api: InProcessApi):
    path, whole = f"{CORE}/configmaps/c", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    empty = {**whole, "metadata": {"name": "c", "annotations": {}}}
    full = {**whole, "metadata": {"name": "c", "annotations": {"a": "b"}}}
    patch(api, f"{path}?fieldManager=one", empty, APPLY)
    status, answer = api("PATCH", f"{path}?fieldManager=two", full, APPLY)
    assert (status, [each["field"] for each in answer["details"]["causes"]]) == (409, [".metadata.annotations"])
    patch(api, f"{path}?fieldManager=two&force=true", full, APPLY)


async def test_what_an_apply_takes_away_conflicts_with_nobody(api: InProcessApi):
    path = f"{CORE}/configmaps"
    whole = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    api("POST", f"{path}?fieldManager=one", {**whole, "data": {"a": "1", "b": "2"}})
    patch(api, f"{path}/c?fieldManager=two&force=true", {**whole, "data": {"b": "3"}}, APPLY)
    assert patch(api, f"{path}/c?fieldManager=two", {**whole, "data": {}}, APPLY)["data"] == {"a": "1"}


async def test_a_configuration_without_metadata_leaves_no_name_where_its_manager_owned_some(api: InProcessApi):
    path, bare = f"{CORE}/configmaps/c?fieldManager=one", {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}}
    patch(api, path, {**bare, "metadata": {"name": "c", "labels": {"a": "b"}}}, APPLY)
    status, answer = api("PATCH", path, bare, APPLY)
    assert (status, "undeterminable" in answer["message"]) == (400, True)
    patch(api, path, {**bare, "metadata": {}}, APPLY)
    patch(api, path, bare, APPLY)


async def test_a_parent_of_empty_lists_is_nobodys(api: InProcessApi):
    path = f"{APPS}/deployments/d?fieldManager="
    patch(api, f"{path}one", deployment("c"), APPLY)
    body = deployment()
    del body["spec"]["selector"], body["spec"]["template"]["metadata"]
    body["spec"]["paused"] = True
    owners = patch(api, f"{path}two", body, APPLY)["metadata"]["managedFields"]
    [two] = [each["fieldsV1"] for each in owners if each["manager"] == "two"]
    assert two == {"f:spec": {"f:paused": {}}}


async def test_a_refused_write_of_a_daemon_set_counts_no_template(api: InProcessApi):
    body = {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}}
    path = made(api, f"{APPS}/daemonsets", "d", body)
    wrong = {"spec": {"template": {"spec": {"containers": []}}}}
    assert api("PATCH", path, wrong, MERGE)[0] == 422
    changed = {"spec": {"template": {"spec": {"nodeSelector": {"x": "y"}}}}}
    assert api("PATCH", f"{path}?dryRun=All", changed, MERGE)[1]["metadata"]["annotations"][TEMPLATES] == "2"
    assert api("GET", path)[1]["metadata"]["annotations"][TEMPLATES] == "1"


async def test_who_creates_what_is_there_already_is_warned_too(api: InProcessApi):
    body = deployment("c")
    body["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "A"}, {"name": "A"}]
    for status in (201, 409):
        assert api("POST", f"{APPS}/deployments", body)[0] == status
        assert ["hides previous definition" in each for each in api.warnings] == [True]


# --- deletions --------------------------------------------------------------------------------------------------------


async def test_an_object_without_a_grace_goes_in_one_step_with_its_last_finalizer(api: InProcessApi):
    path = f"{APPS}/replicasets"
    made(api, path, "r", {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}})
    waiting = api("DELETE", f"{path}/r", {"propagationPolicy": "Foreground"})[1]
    assert api("DELETE", f"{path}/r", {"propagationPolicy": "Background"})[0] == 200
    assert int(api("GET", path)[1]["metadata"]["resourceVersion"]) == version(waiting) + 1


async def test_a_second_eviction_writes_nothing(api: InProcessApi):
    pod = made(api, f"{CORE}/pods", "p", {"spec": TEMPLATE["spec"]}, finalizers=["a.b/c"])
    eviction = {"metadata": {"name": "p"}}
    versions = []
    for _ in range(2):
        assert api("POST", f"{pod}/eviction", eviction)[0] == 201
        versions.append(version(api("GET", pod)[1]))
    assert versions[0] == versions[1]


async def test_a_deletion_timestamp_that_is_sent_does_not_count_but_is_owned(api: InProcessApi):
    path = made(api, f"{CORE}/configmaps", "c", {}, finalizers=["a.b/c"])
    before = api("DELETE", path)[1]["metadata"]["deletionTimestamp"]
    after = patch(api, path, {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}})["metadata"]
    assert after["deletionTimestamp"] == before
    assert any("f:deletionTimestamp" in each["fieldsV1"]["f:metadata"] for each in after["managedFields"])


# --- patches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("media", "body", "status", "told"),
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
async def test_patches_are_refused_in_kubernetes_words(
    api: InProcessApi, media: str, body: Any, status: int, told: str
):
    api("POST", f"{APPS}/deployments", deployment("c"))
    mode = "Strict" if status == 422 else "Warn"
    found, answer = api("PATCH", f"{APPS}/deployments/d?fieldValidation={mode}", body, media)
    assert (found, told in answer.get("message", "")) == (status, True), answer


async def test_a_time_of_seven_digits_is_told_from_the_seventh_on(api: InProcessApi):
    body = {"metadata": {"name": "l"}, "spec": {"renewTime": "2024-01-01T00:00:00.1234567Z"}}
    status, answer = api("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", body)
    assert (status, 'cannot parse "7Z" as "Z07:00"' in answer["message"]) == (400, True)


@pytest.mark.parametrize(
    ("media", "body", "status", "told"),
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
async def test_bodies_are_refused_in_kubernetes_words(api: InProcessApi, media: str, body: str, status: int, told: str):
    found, answer = api("POST", f"{CORE}/configmaps", body, media)
    assert (found, told in answer.get("message", "")) == (status, True), answer


# --- what is sent empty -----------------------------------------------------------------------------------------------

POLICIES = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


async def test_messages_tell_an_empty_list_that_is_sent_from_none(api: InProcessApi):
    path = made(api, f"{CORE}/pods", "p", {"spec": {"containers": [{"name": "c", "image": "i"}]}})
    container = {"name": "c", "image": "i", "args": [], "command": ["x"]}
    for verb, media in (("PUT", "application/json"), ("PATCH", MERGE)):
        told = api(verb, path, {"metadata": {"name": "p"}, "spec": {"containers": [container]}}, media)[1]["message"]
        assert '-   "Args": null,\n' in told
        assert '+   "Args": [],\n' in told


async def test_an_empty_list_in_a_network_policy_is_a_new_generation(api: InProcessApi):
    spec = {"podSelector": {}, "policyTypes": ["Ingress"]}
    path = made(api, POLICIES, "n", {"spec": spec})
    assert api("PUT", path, {"metadata": {"name": "n"}, "spec": spec})[1]["metadata"]["generation"] == 1
    found = api("PUT", path, {"metadata": {"name": "n"}, "spec": {**spec, "egress": []}})[1]
    assert found["metadata"]["generation"] == 2
    assert "egress" not in found["spec"]


async def test_lists_that_json_always_shows_come_back_as_none_wherever_they_are(api: InProcessApi):
    volume = {"name": "v", "projected": {"sources": []}}
    spec = {"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never", "volumes": [volume]}}}
    made(api, JOBS, "j", {"spec": {**spec, "podFailurePolicy": {"rules": []}}})
    found = api("GET", f"{JOBS}/j")[1]["spec"]
    assert found["podFailurePolicy"] == {"rules": None}
    assert found["template"]["spec"]["volumes"][0]["projected"]["sources"] is None


# --- kinds with ways of their own -------------------------------------------------------------------------------------

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


async def test_an_event_is_checked_by_the_rules_of_the_group_that_it_is_sent_to(api: InProcessApi):
    made(api, NEW_EVENTS, "e", NEW_EVENT)
    told = api("PATCH", f"{NEW_EVENTS}/e", {"note": "other"}, MERGE)[1]["message"]
    assert told == 'Event "e" is invalid: message: Invalid value: "other": field is immutable'
    assert patch(api, f"{CORE}/events/e", {"message": "other"})["message"] == "other"
    told = api("POST", NEW_EVENTS, {"metadata": {"name": "f"}, "type": "Normal"})[1]["message"]
    assert told == 'Event "f" is invalid: eventTime: Required value'
    assert api("POST", f"{CORE}/events", {"metadata": {"name": "f"}})[0] == 201


async def test_events_are_named_by_the_group_that_they_are_sent_to(api: InProcessApi):
    made(api, NEW_EVENTS, "e", NEW_EVENT)
    old = {"involvedObject": {"namespace": "default"}}
    for path, name, event in ((NEW_EVENTS, "events.events.k8s.io", NEW_EVENT), (f"{CORE}/events", "events", old)):
        body = {**event, "metadata": {"name": "e"}}
        assert api("POST", path, body)[1]["message"] == f'{name} "e" already exists'
        body["metadata"]["resourceVersion"] = "1"
        assert api("PUT", f"{path}/e", body)[1]["message"].startswith(f'Operation cannot be fulfilled on {name} "e": ')


async def test_owners_of_an_event_are_those_of_the_group_of_the_last_write(api: InProcessApi):
    made(api, NEW_EVENTS, "e", NEW_EVENT)
    found = patch(api, f"{CORE}/events/e?fieldManager=x", {"metadata": {"labels": {"a": "b"}}})
    assert [each["apiVersion"] for each in found["metadata"]["managedFields"]] == ["v1"]


async def test_the_status_of_an_absent_service_is_a_service_without_an_address(api: InProcessApi):
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    path = f"{CORE}/services/s/status?fieldManager=x"
    status, told = api("PATCH", path, service, APPLY)
    assert (status, told["message"]) == (422, 'Service "s" is invalid: spec.ports: Required value')
    conditions = [{"type": "A", "status": "True", "reason": "r", "message": "", "lastTransitionTime": None}]
    whole = {**service, "spec": {"ports": [{"port": 1}]}, "status": {"conditions": conditions}}
    status, made_so = api("PUT", path, whole)
    assert (status, made_so["status"], "clusterIP" in made_so["spec"]) == (201, {"loadBalancer": {}}, False)
    assert list(made_so["metadata"]["managedFields"][0]["fieldsV1"]) == ["f:status"]


async def test_the_status_of_nothing_is_not_looked_at(api: InProcessApi):
    wrong = {"apiVersion": "v1", "kind": "Guess"}
    assert api("PATCH", f"{CORE}/pods/p/status?fieldManager=x", wrong, APPLY)[0] == 404


@pytest.mark.parametrize(
    ("operation", "told"),
    [
        ({"path": "/kind", "value": {}}, "json: cannot unmarshal object into Go struct field .kind of type string"),
        (
            {"path": "/apiVersion", "value": 1},
            "cannot unmarshal number into Go struct field .apiVersion of type string",
        ),
        ({"path": "/apiVersion", "value": "a/b/c"}, "unexpected GroupVersion string: a/b/c"),
    ],
)
async def test_a_patch_of_the_kind_is_read_like_a_body(api: InProcessApi, operation: JSON, told: str):
    path = made(api, f"{CORE}/configmaps", "c", {})
    status, answer = api("PATCH", path, [{"op": "add", **operation}], OPERATIONS)
    assert (status, answer["message"].endswith(told)) == (422, True), answer["message"]


async def test_a_patch_may_make_the_kind_and_the_version_null(api: InProcessApi):
    path = made(api, f"{CORE}/configmaps", "c", {})
    assert patch(api, path, [{"op": "add", "path": "/kind", "value": None}], OPERATIONS)["kind"] == "ConfigMap"
    status, answer = api("PATCH", path, [{"op": "add", "path": "/apiVersion", "value": None}], OPERATIONS)
    assert (status, api.warnings) == (400, ['299 - "unknown field \\"metadata\\""']), answer


async def test_a_patch_that_takes_the_version_away_is_refused_where_updates_need_one(api: InProcessApi):
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    path = made(api, budgets, "b", {"spec": {"selector": {}}})
    status, answer = api("PATCH", path, {"metadata": {"resourceVersion": None}}, MERGE)
    assert (status, answer["details"]["causes"][0]["field"]) == (422, "metadata.resourceVersion")
    assert patch(api, path, {"metadata": {"labels": {"a": "b"}}})["metadata"]["labels"] == {"a": "b"}


async def test_owners_of_a_status_in_a_second_version_are_of_the_status(api: InProcessApi):
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    autoscalers = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
    path = made(api, autoscalers, "h", {"spec": {"maxReplicas": 2, "scaleTargetRef": target}})
    found = patch(api, f"{path}/status?fieldManager=s", {"status": {"currentReplicas": 1, "desiredReplicas": 2}})
    assert {each["manager"]: each.get("subresource") for each in found["metadata"]["managedFields"]} == {
        "unknown": None,
        "s": "status",
    }


async def test_what_cannot_change_does_not_become_empty_either(api: InProcessApi):
    path = made(api, f"{CORE}/secrets", "s", {"immutable": True})
    assert api("PATCH", path, {"data": {}}, MERGE)[1]["details"]["causes"][0]["field"] == "data"
    path = made(api, f"{CORE}/configmaps", "c", {"immutable": True})
    assert api("PATCH", path, {"binaryData": {}}, MERGE)[1]["details"]["causes"][0]["field"] == "binaryData"
    patch(api, path, {"data": {}})  # by default it is empty


async def test_after_an_applied_scale_one_entry_of_its_manager_is_left(api: InProcessApi):
    body = {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE, "replicas": 2}}
    path = made(api, f"{APPS}/replicasets", "r", body)
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "r"}, "spec": {"replicas": 2}}
    patch(api, f"{path}/scale?fieldManager=unknown", scale, APPLY)
    applied = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r"}}
    found = patch(api, f"{path}?fieldManager=x", {**applied, "spec": {"minReadySeconds": 1}}, APPLY)
    owners = [(each["manager"], each["operation"]) for each in found["metadata"]["managedFields"]]
    assert owners == [("unknown", "Apply"), ("x", "Apply"), ("unknown", "Update")]
