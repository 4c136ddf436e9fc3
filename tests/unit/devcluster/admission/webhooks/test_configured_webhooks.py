"""Admission webhooks of a server: mutations, denials, failures, selection of requests, metrics, annotations."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubeloop.devcluster.admission.plugin_settings import WITHOUT_ACCOUNTS, PluginSettings
from kubeloop.devcluster.admission.webhooks.configured_webhooks import Reinvocations
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.served_resources import VALIDATING_WEBHOOK_CONFIGURATIONS
from kubeloop.devcluster.server.apiserver import ServingSettings
from support.apiserver.api_requests import InProcessApi, pending_of, request, response_of
from support.objects.admission_webhook import (
    ALL_RULES,
    AdmissionWebhook,
    configuration,
    configurations_path,
    label,
    patch,
    running_admission_webhook,
)

JSON = dict[str, Any]
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
MAP_RULES = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}]


@pytest.fixture
async def hook() -> AsyncIterator[AdmissionWebhook]:
    async with running_admission_webhook() as hook:
        yield hook


@pytest.fixture
async def api() -> AsyncIterator[InProcessApi]:
    api = InProcessApi()
    yield api
    await api.server._webhook_client.close()


def config_map(name: str = "a", **metadata: Any) -> JSON:
    return {"metadata": {"name": name, **metadata}, "data": {"a": "b"}}


async def configure(api: InProcessApi, kind: str, *webhooks: JSON, name: str = "c") -> None:
    status, body = await api.handle("POST", configurations_path(kind), configuration(kind, name, *webhooks))
    assert status == 201, body


async def test_mutations_of_several_webhooks_apply_in_order(api: InProcessApi, hook: AdmissionWebhook):
    hook.answers["/first"] = label("first")
    hook.answers["/second"] = patch({"op": "add", "path": "/metadata/labels/second", "value": "yes"})
    await configure(api, "mutating", hook.webhook("/second", rules=MAP_RULES), name="b")
    await configure(api, "mutating", hook.webhook("/first", rules=MAP_RULES), name="a")
    status, created = await api.handle("POST", MAPS, config_map())
    assert (status, created["metadata"]["labels"]) == (201, {"first": "yes", "second": "yes"})
    assert [path for path, _ in hook.reviews] == ["/first?timeout=10s", "/second?timeout=10s"]
    assert hook.reviews[1][1]["request"]["object"]["metadata"]["labels"] == {"first": "yes"}
    managers = [entry["fieldsV1"] for entry in created["metadata"]["managedFields"]]
    assert "f:labels" not in json.dumps(managers)  # nobody owns what webhooks set


async def test_webhook_is_reinvoked_after_later_changes(api: InProcessApi, hook: AdmissionWebhook):
    hook.answers["/changes"] = label("x")
    await configure(
        api,
        "mutating",
        hook.webhook("/again", rules=MAP_RULES, reinvocationPolicy="IfNeeded"),
        hook.webhook("/changes", rules=MAP_RULES, reinvocationPolicy="IfNeeded"),
        hook.webhook("/last", rules=MAP_RULES, reinvocationPolicy="IfNeeded"),
        hook.webhook("/never", rules=MAP_RULES),
    )
    await api.handle("POST", MAPS, config_map())
    called = [path.partition("?")[0] for path, _ in hook.reviews]
    assert called == ["/again", "/changes", "/last", "/never", "/again"]


async def test_configuration_takes_effect_with_the_next_request(api: InProcessApi, hook: AdmissionWebhook):
    hook.answers["/deny"] = {"allowed": False, "status": {"message": "no"}}
    await configure(api, "validating", hook.webhook("/deny", rules=MAP_RULES))
    status, body = await api.handle("POST", MAPS, config_map())
    assert (status, body["message"]) == (400, 'admission webhook "deny.example.com" denied the request: no')
    await api.handle("DELETE", f"{configurations_path('validating')}/c")
    assert (await api.handle("POST", MAPS, config_map()))[0] == 201


@pytest.mark.parametrize(
    ("status", "code", "reason", "message"),
    [
        (None, 400, None, " without explanation"),
        ({"reason": "Because", "code": 418}, 418, "Because", ": Because"),
        ({"message": "m", "code": 200}, 400, None, ": m"),
        ({"message": "m", "reason": "Forbidden", "code": 403}, 403, "Forbidden", ": m"),
    ],
)
@pytest.mark.parametrize("kind", ["mutating", "validating"])
async def test_denial_has_the_status_of_the_webhook(
    api: InProcessApi, hook: AdmissionWebhook, kind: str, status: JSON | None, code: int, reason: Any, message: str
):
    hook.answers["/deny"] = {"allowed": False, **({"status": status} if status else {})}
    await configure(api, kind, hook.webhook("/deny", rules=MAP_RULES))
    response = await api.handle("POST", MAPS, config_map())
    assert (response[0], response[1].get("reason")) == (code, reason)
    assert response[1]["message"] == f'admission webhook "deny.example.com" denied the request{message}'


async def test_all_operations_and_subresources_are_reviewed(api: InProcessApi, hook: AdmissionWebhook):
    await configure(api, "validating", hook.webhook("/all", rules=ALL_RULES))
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await api.handle("POST", PODS, pod)
    await api.handle("PATCH", f"{PODS}/a", {"metadata": {"labels": {"a": "b"}}})
    await api.handle("PATCH", f"{PODS}/a/status", {"status": {"message": "m"}})
    await api.handle("POST", f"{PODS}/a/eviction", {"metadata": {"name": "a"}})
    await api.handle("GET", f"{PODS}/a/exec?command=ls&stdout=1")
    await api.handle("POST", MAPS, config_map())
    await api.handle("DELETE", MAPS)
    seen = [(body["request"]["operation"], body["request"].get("subResource")) for _, body in hook.reviews]
    for expected in [
        ("CREATE", None), ("UPDATE", None), ("UPDATE", "status"), ("CREATE", "eviction"), ("CONNECT", "exec"),
        ("DELETE", None),
    ]:  # fmt: skip
        assert expected in seen
    deletion = hook.reviews[-1][1]["request"]
    assert (deletion["object"], deletion["oldObject"]["metadata"]["name"]) == (None, "a")


async def test_webhooks_are_not_called_for_configurations(api: InProcessApi, hook: AdmissionWebhook):
    hook.answers["/deny"] = {"allowed": False}
    for kind in ("mutating", "validating"):
        await configure(api, kind, hook.webhook("/deny", rules=ALL_RULES))
    status, _ = await api.handle("DELETE", f"{configurations_path('mutating')}/c")
    assert (status, hook.reviews) == (200, [])


async def test_mutating_webhook_may_deny_but_not_change_a_deletion(api: InProcessApi, hook: AdmissionWebhook):
    await api.handle("POST", MAPS, config_map())
    hook.answers["/label"] = label("x")
    await configure(api, "mutating", hook.webhook("/label", rules=MAP_RULES))
    status, body = await api.handle("DELETE", f"{MAPS}/a")
    attempted = 'admission webhook "label.example.com" attempted to modify the object'
    assert (status, body["message"]) == (
        500,
        f"Internal error occurred: {attempted}, which is not supported for this operation",
    )


async def test_connect_options_can_be_changed(api: InProcessApi, hook: AdmissionWebhook):
    hook.answers["/exec"] = patch({"op": "add", "path": "/container", "value": "other"})
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/exec"], "operations": ["CONNECT"]}]
    await configure(api, "mutating", hook.webhook("/exec", rules=rules))
    containers = [{"name": name, "image": "i"} for name in ("c", "other")]
    await api.handle("POST", PODS, {"metadata": {"name": "a"}, "spec": {"containers": containers}})
    exec_request = request("GET", f"{PODS}/a/exec?container=c&command=ls&stdout=1")
    await pending_of(api.server.respond(exec_request))()
    assert (exec_request.option("container"), exec_request.query["command"]) == ("other", ["ls"])


@pytest.mark.parametrize("kind", ["mutating", "validating"])
async def test_failure_is_ignored_or_denies_by_policy(api: InProcessApi, hook: AdmissionWebhook, kind: str):
    unreachable = {**hook.webhook("/x", rules=MAP_RULES), "clientConfig": {"url": "https://127.0.0.1:1/x"}}
    await configure(api, kind, unreachable)
    status, body = await api.handle("POST", MAPS, config_map())
    refused = 'Post "https://127.0.0.1:1/x?timeout=10s": dial tcp 127.0.0.1:1: connect: connection refused'
    failed = f'failed calling webhook "x.example.com": failed to call webhook: {refused}'
    assert (status, body["reason"], body["message"]) == (500, "InternalError", f"Internal error occurred: {failed}")
    path = f"{configurations_path(kind)}/c"
    await api.handle("PATCH", path, {"webhooks": [{**unreachable, "failurePolicy": "Ignore"}]})
    assert (await api.handle("POST", MAPS, config_map()))[0] == 201


async def test_time_out_is_that_of_webhook_or_request(api: InProcessApi, hook: AdmissionWebhook):
    hook.delay_seconds = 5.0
    await configure(api, "validating", hook.webhook("/slow", rules=MAP_RULES, timeoutSeconds=1))
    status, body = await api.handle("POST", MAPS, config_map())
    assert (status, body["message"].rpartition(": ")[2]) == (500, "context deadline exceeded")
    await api.handle(
        "PATCH",
        f"{configurations_path('validating')}/c",
        {"webhooks": [hook.webhook("/slow", rules=MAP_RULES, failurePolicy="Ignore")]},
    )
    status, body = await api.handle("POST", f"{MAPS}?timeout=200ms", config_map())
    assert (status, body["message"]) == (504, "Timeout: request did not complete within requested timeout")


async def test_dry_run_needs_a_webhook_without_side_effects(api: InProcessApi, hook: AdmissionWebhook):
    await configure(api, "validating", hook.webhook("/ok", rules=MAP_RULES, sideEffects="NoneOnDryRun"))
    assert (await api.handle("POST", f"{MAPS}?dryRun=All", config_map()))[0] == 201
    assert hook.reviews[0][1]["request"]["dryRun"] is True
    stored = api.server.store.list(VALIDATING_WEBHOOK_CONFIGURATIONS)[0]
    stored["webhooks"][0]["sideEffects"] = "Some"  # as stored by an older server
    api.server.store.update(VALIDATING_WEBHOOK_CONFIGURATIONS, stored)
    status, body = await api.handle("POST", f"{MAPS}?dryRun=All", config_map())
    assert (status, body["message"]) == (400, 'admission webhook "ok.example.com" does not support dry run')


async def test_selectors_and_match_conditions_select_requests(api: InProcessApi, hook: AdmissionWebhook):
    await configure(
        api,
        "validating",
        hook.webhook("/object", rules=MAP_RULES, objectSelector={"matchLabels": {"on": "1"}}),
        hook.webhook("/other", rules=MAP_RULES, namespaceSelector={"matchLabels": {"team": "x"}}),
        hook.webhook("/named", rules=MAP_RULES, matchConditions=[{"name": "n", "expression": "request.name == 'a'"}]),
    )
    for obj in (config_map(labels={"on": "1"}), config_map("b")):
        await api.handle("POST", MAPS, obj)
    called = {(path.partition("?")[0], body["request"]["name"]) for path, body in hook.reviews}
    assert called == {("/object", "a"), ("/named", "a")}


async def test_failed_match_condition_follows_the_failure_policy(api: InProcessApi, hook: AdmissionWebhook):
    conditions = [{"name": "n", "expression": "object.data.missing == 'x'"}]
    await configure(api, "validating", hook.webhook("/x", rules=MAP_RULES, matchConditions=conditions))
    status, body = await api.handle("POST", MAPS, config_map())
    error = "expression 'object.data.missing == 'x'' resulted in error: no such key: missing"
    assert (status, body["message"]) == (403, f'configmaps "a" is forbidden: {error}')
    ignored = hook.webhook("/x", rules=MAP_RULES, matchConditions=conditions, failurePolicy="Ignore")
    await api.handle("PATCH", f"{configurations_path('validating')}/c", {"webhooks": [ignored]})
    assert (await api.handle("POST", MAPS, config_map()))[0] == 201
    assert hook.reviews == []


async def test_equivalent_resource_is_reviewed_in_the_version_of_the_rule(api: InProcessApi, hook: AdmissionWebhook):
    rules = [{"apiGroups": ["autoscaling"], "apiVersions": ["v1"], "resources": ["*"], "operations": ["*"]}]
    metric = {
        "type": "Resource",
        "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 9}},
    }
    spec = {
        "maxReplicas": 2,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
        "metrics": [metric],
    }
    hook.answers["/v1"] = patch({"op": "replace", "path": "/spec/maxReplicas", "value": 5})
    await configure(
        api, "mutating", hook.webhook("/v1", rules=rules), hook.webhook("/x", rules=rules, matchPolicy="Exact")
    )
    path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
    _, created = await api.handle("POST", path, {"metadata": {"name": "h"}, "spec": spec})
    (review,) = [body["request"] for _, body in hook.reviews]
    assert (review["kind"]["version"], review["requestKind"]["version"]) == ("v1", "v2")
    assert review["object"]["apiVersion"] == "autoscaling/v1"
    assert (created["spec"]["maxReplicas"], created["spec"]["metrics"][0]["type"]) == (5, "Resource")


async def test_validating_webhooks_are_called_at_the_same_time(api: InProcessApi, hook: AdmissionWebhook):
    hook.delay_seconds = 0.3
    await configure(api, "validating", *(hook.webhook(f"/v{index}", rules=MAP_RULES) for index in range(5)))
    began = asyncio.get_running_loop().time()
    assert (await api.handle("POST", MAPS, config_map()))[0] == 201
    assert asyncio.get_running_loop().time() - began < 1.2
    assert len(hook.reviews) == 5


async def test_warnings_of_webhooks_are_sent(api: InProcessApi, hook: AdmissionWebhook):
    hook.answers["/warn"] = {"warnings": ["careful"]}
    await configure(api, "validating", hook.webhook("/warn", rules=MAP_RULES))
    await api.handle("POST", MAPS, config_map())
    assert api.warnings == ['299 - "careful"']


async def test_metrics_count_calls_rejections_and_ignored_failures(api: InProcessApi, hook: AdmissionWebhook):
    hook.answers["/deny"] = {"allowed": False, "status": {"code": 403}}
    hook.answers["/label"] = label("x")
    unreachable = {**hook.webhook("/gone", rules=MAP_RULES, failurePolicy="Ignore")}
    unreachable["clientConfig"] = {"url": "https://127.0.0.1:1/x"}
    await configure(api, "mutating", hook.webhook("/label", rules=MAP_RULES), unreachable)
    await configure(api, "validating", hook.webhook("/deny", rules=MAP_RULES))
    await api.handle("POST", MAPS, config_map())
    _, text = await api.handle("GET", "/metrics")
    prefix, suffix = "apiserver_admission_webhook_", ',operation="CREATE",rejected="false",type="admit"} 1.0'
    for line in (
        f'{prefix}request_total{{code="200",name="label.example.com"{suffix}',
        f'{prefix}request_total{{code="503",name="gone.example.com"{suffix}',
        f'{prefix}rejection_count{{error_type="no_error",name="deny.example.com",operation="CREATE",'
        'rejection_code="403",type="validating"} 1.0',
        f'{prefix}fail_open_count{{name="gone.example.com",type="admit"}} 1.0',
        f"# TYPE {prefix}rejection_count counter",
        f'{prefix}admission_duration_seconds_count{{name="label.example.com"{suffix}',
    ):
        assert line in text


async def test_audit_annotations_name_webhooks_and_mutations(
    api: InProcessApi, hook: AdmissionWebhook, monkeypatch: pytest.MonkeyPatch
):
    annotations: dict[str, str] = {}
    monkeypatch.setattr(
        RequestContext, "annotate", lambda _, key, value, with_objects=False: annotations.setdefault(key, value)
    )
    hook.answers["/label"] = {**label("x"), "auditAnnotations": {"key": "value"}}
    unreachable = {**hook.webhook("/gone", rules=MAP_RULES, failurePolicy="Ignore")}
    unreachable["clientConfig"] = {"url": "https://127.0.0.1:1/x"}
    await configure(api, "mutating", hook.webhook("/label", rules=MAP_RULES), unreachable)
    await configure(api, "validating", unreachable)
    await api.handle("POST", MAPS, config_map())
    mutation = {"configuration": "c", "webhook": "label.example.com"}
    operation = {"op": "add", "path": "/metadata/labels", "value": {"x": "yes"}}
    assert annotations["label.example.com/key"] == "value"
    assert json.loads(annotations["mutation.webhook.admission.k8s.io/round_0_index_0"]) == {**mutation, "mutated": True}
    assert json.loads(annotations["patch.webhook.admission.k8s.io/round_0_index_0"]) == {
        **mutation,
        "patch": [operation],
        "patchType": "JSONPatch",
    }
    assert annotations["failed-open.mutation.webhook.admission.k8s.io/round_0_index_1"] == "gone.example.com"
    assert annotations["failed-open.validating.webhook.admission.k8s.io/round_0_index_0"] == "gone.example.com"


async def test_request_sees_changes_made_while_it_waited(api: InProcessApi, hook: AdmissionWebhook):
    await api.handle("POST", MAPS, config_map())
    hook.delay_seconds = 0.2
    await configure(
        api, "validating", hook.webhook("/slow", rules=MAP_RULES, objectSelector={"matchLabels": {"s": "1"}})
    )
    pending = pending_of(api.server.respond(request("PATCH", f"{MAPS}/a", {"metadata": {"labels": {"s": "1"}}})))
    waiting = asyncio.create_task(pending())
    await asyncio.sleep(0.05)
    assert (await api.handle("PATCH", f"{MAPS}/a", {"data": {"c": "d"}}))[0] == 200
    status, body = response_of(await waiting)
    assert (status, body["data"], body["metadata"]["labels"]) == (200, {"a": "b", "c": "d"}, {"s": "1"})
    assert len(hook.reviews) == 2  # the request was handled again


async def test_unknown_fields_of_custom_resources_are_dropped_when_stored(api: InProcessApi, hook: AdmissionWebhook):
    hook.answers["/unknown"] = patch({"op": "add", "path": "/spec/unknown", "value": "x"})
    spec = {"type": "object", "properties": {"a": {"type": "string"}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    versions = [{"name": name, "served": True, "storage": name == "v1", "schema": schema} for name in ("v1", "v2")]
    names = {"plural": "widgets", "kind": "Widget"}
    definition = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    api.create(path, {"metadata": {"name": "widgets.example.com"}, "spec": definition})

    def webhook(path: str, version: str) -> JSON:
        rule = {"apiGroups": ["example.com"], "apiVersions": [version], "resources": ["*"], "operations": ["*"]}
        return hook.webhook(path, rules=[rule])

    await configure(api, "mutating", webhook("/unknown", "v1"), webhook("/second", "v2"))
    await configure(api, "validating", webhook("/third", "v1"))
    for version in ("v1", "v2"):
        hook.reviews.clear()
        path = f"/apis/example.com/{version}/namespaces/default/widgets"
        body = {"apiVersion": f"example.com/{version}", "kind": "Widget", "metadata": {"name": version}, "spec": {}}
        assert (await api.handle("POST", path, body))[1]["spec"] == {}
        reviewed = [review["request"]["object"]["spec"] for _, review in hook.reviews]
        assert reviewed == [{}, {"unknown": "x"}, {"unknown": "x"}]
        status, patched = await api.handle("PATCH", f"{path}/{version}", {"spec": {"a": "b"}})
        assert (status, patched["spec"]) == (200, {"a": "b"})


async def test_valid_reviews_are_admitted_too(api: InProcessApi, hook: AdmissionWebhook):
    hook.answers["/deny"] = {"allowed": False, "status": {"message": "no"}}
    rules = [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["CREATE"]}]
    await configure(api, "validating", hook.webhook("/deny", rules=rules))
    for path, spec in (
        ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"resourceAttributes": {"verb": "get"}}),
        ("/apis/authentication.k8s.io/v1/tokenreviews", {"token": "x"}),
    ):
        assert (await api.handle("POST", path, {"spec": spec}))[1]["message"].endswith("denied the request: no")
        status, _ = await api.handle("POST", path, {"spec": {}})
        assert status in (400, 422)
    assert len(hook.reviews) == 2


async def test_disabled_plugins_call_no_webhooks(hook: AdmissionWebhook):
    plugins = WITHOUT_ACCOUNTS - {"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"}
    api = InProcessApi(settings=ServingSettings(admission=PluginSettings(plugins)))
    for kind in ("mutating", "validating"):
        await configure(api, kind, hook.webhook("/x", rules=MAP_RULES))
    assert (await api.handle("POST", MAPS, config_map()))[0] == 201
    assert hook.reviews == []


async def test_service_with_an_annotation_is_called(api: InProcessApi, hook: AdmissionWebhook):
    annotations = {"kubeloop.dev/local-address": hook.url.removeprefix("https://")}
    service = {"metadata": {"name": "hook", "annotations": annotations}, "spec": {"ports": [{"port": 443}]}}
    await api.handle("POST", "/api/v1/namespaces/default/services", service)
    client_config = {"service": {"namespace": "default", "name": "hook", "path": "/s"}, "caBundle": hook.ca}
    await configure(api, "validating", {**hook.webhook("/s", rules=MAP_RULES), "clientConfig": client_config})
    assert (await api.handle("POST", MAPS, config_map()))[0] == 201
    assert [path for path, _ in hook.reviews] == ["/s?timeout=10s"]


def test_webhooks_called_before_a_change_are_required_again():
    reinvocations = Reinvocations(invoked={"a"})
    reinvocations.require_invoked()
    reinvocations.invoked.add("b")
    assert (reinvocations.required, reinvocations.invoked) == ({"a"}, {"b"})
