"""Match conditions of webhook configurations."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.admissionregistration import mutating_webhook_configuration as mutating
from kubeloop.devcluster.kinds.admissionregistration import validating_webhook_configuration as validating
from kubeloop.devcluster.validation.common.error_list import ErrorList
from support.apiserver.api_requests import InProcessApi

GROUP = "/apis/admissionregistration.k8s.io/v1"
KINDS = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"]


@pytest.fixture
async def api() -> InProcessApi:
    return InProcessApi()


def configuration(*conditions: tuple[str, str], name: str = "a") -> dict[str, Any]:
    webhook = {
        "name": "a.example.com",
        "clientConfig": {"url": "https://a.example.com"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "matchConditions": [{"name": name, "expression": expression} for name, expression in conditions],
    }
    return {"metadata": {"name": name}, "webhooks": [webhook]}


@pytest.mark.parametrize("plural", KINDS)
@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ((("a", "... [] bad expression"),), "webhooks[0].matchConditions[0].expression: Invalid value"),
        ((("a", "params.x == 1"),), "compilation failed: ERROR: <input>:1:1: undeclared reference to 'params'"),
        ((("a", "1"),), "must evaluate to bool"),
        ((("a", ""),), "webhooks[0].matchConditions[0].expression: Required value"),
        ((("a", "true"), ("a", "true")), "webhooks[0].matchConditions[1].name: Duplicate value"),
    ],
    ids=["syntax", "parameters", "type", "empty", "names"],
)
async def test_invalid_match_condition_is_refused(api: InProcessApi, plural, conditions, message):
    status, body = api("POST", f"{GROUP}/{plural}", configuration(*conditions))
    assert status == 422
    assert message in body["message"]


@pytest.mark.parametrize("plural", KINDS)
async def test_valid_match_conditions_are_accepted_and_validated_on_change(api: InProcessApi, plural):
    path = f"{GROUP}/{plural}/a"
    created = api.create(f"{GROUP}/{plural}", configuration(("a", "request.userInfo.username != object.metadata.name")))
    created["webhooks"][0]["matchConditions"][0]["expression"] = "object.metadata["
    status, body = api("PUT", path, created)
    assert (status, "webhooks[0].matchConditions[0].expression" in body["message"]) == (422, True)


@pytest.mark.parametrize("strategy", [validating.STRATEGY, mutating.STRATEGY], ids=KINDS)
def test_unchanged_match_conditions_are_not_validated_again(strategy):
    obj, errors = configuration(("a", "no longer valid")), ErrorList()
    strategy.validate_update(errors, {**obj, "metadata": {"name": "b"}}, obj)
    assert errors == []


_RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}


@pytest.mark.parametrize("plural", KINDS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "a.b"}, "should be a domain with at least three segments"),
        ({"name": ""}, "webhooks[0].name: Required value"),
        ({"name": "A.b.c"}, "a lowercase RFC 1123 subdomain"),
        ({"sideEffects": None}, "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun"),
        ({"sideEffects": "Some"}, 'sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"'),
        ({"timeoutSeconds": 31}, "Invalid value: 31: the timeout value must be between 1 and 30 seconds"),
        ({"timeoutSeconds": 0}, "Invalid value: 0: the timeout value must be between 1 and 30 seconds"),
        ({"failurePolicy": "Maybe"}, 'failurePolicy: Unsupported value: "Maybe"'),
        ({"matchPolicy": "Maybe"}, 'matchPolicy: Unsupported value: "Maybe"'),
        ({"reinvocationPolicy": "Maybe"}, 'reinvocationPolicy: Unsupported value: "Maybe"'),
        ({"admissionReviewVersions": []}, "admissionReviewVersions: Required value: must specify one of v1, v1beta1"),
        ({"admissionReviewVersions": ["v2"]}, "must include at least one of v1, v1beta1"),
        ({"clientConfig": {}}, "webhooks[0].clientConfig: Required value: exactly one of url or service is required"),
        ({"clientConfig": {"url": "http://a"}}, "'https' is the only allowed URL scheme"),
        ({"clientConfig": {"service": {"name": "a", "namespace": ""}}}, "service.namespace: Required value"),
        ({"rules": [{**_RULE, "operations": []}]}, "webhooks[0].rules[0].operations: Required value"),
        ({"rules": [{**_RULE, "resources": ["pods/*", "pods/status"]}]}, "if 'pods/*' is present, must not specify"),
        ({"namespaceSelector": {"matchLabels": {"a": "-"}}}, "namespaceSelector.matchLabels: Invalid value"),
    ],
)  # fmt: skip
async def test_invalid_webhook_is_refused(api: InProcessApi, plural: str, change: dict[str, Any], message: str):
    if "reinvocationPolicy" in change and plural == "validatingwebhookconfigurations":
        return  # it has no such field
    webhook = {**configuration()["webhooks"][0], **change}
    webhook = {name: value for name, value in webhook.items() if value is not None}
    status, body = api("POST", f"{GROUP}/{plural}", {"metadata": {"name": "a"}, "webhooks": [webhook]})
    assert (status, message in body["message"]) == (422, True), body["message"]


@pytest.mark.parametrize("plural", KINDS)
async def test_names_of_webhooks_are_unique(api: InProcessApi, plural: str):
    webhooks = configuration()["webhooks"] * 2
    status, body = api("POST", f"{GROUP}/{plural}", {"metadata": {"name": "a"}, "webhooks": webhooks})
    assert (status, "webhooks[1].name: Duplicate value" in body["message"]) == (422, True)
