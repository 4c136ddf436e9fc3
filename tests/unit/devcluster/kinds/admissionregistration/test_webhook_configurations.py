"""Match conditions of webhook configurations."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.admissionregistration import mutating_webhook_configuration as mutating
from kubeloop.devcluster.kinds.admissionregistration import validating_webhook_configuration as validating
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
    obj = configuration(("a", "no longer valid"))
    strategy.validate_update(None, {**obj, "metadata": {"name": "b"}}, obj)
