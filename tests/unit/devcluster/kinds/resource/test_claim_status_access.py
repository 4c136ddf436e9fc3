"""Permissions for the status of ResourceClaims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kubeloop.devcluster.api.authorizer import AccessAttributes, AuthorizationDecision
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.kinds.resource.claim_status_access import check_binding, check_devices
from support.apiserver.api_requests import InProcessApi
from support.apiserver.request_contexts import request_context

JSON = dict[str, Any]
DEVICE: JSON = {"driver": "d", "pool": "p", "device": "x"}
TERM = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
ALLOCATION: JSON = {"nodeSelector": {"nodeSelectorTerms": [TERM]}}
ROBOT: JSON = {
    "username": "system:serviceaccount:default:robot",
    "extra": {"authentication.kubernetes.io/node-name": ["n"]},
}


class Permissions:
    """Allows "VERB SUBRESOURCE NAMESPACE/NAME"; lists the questions in the same form."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = allowed
        self.asked: list[str] = []

    def authorize(self, attributes: AccessAttributes) -> AuthorizationDecision:
        question = f"{attributes.verb} {attributes.subresource} {attributes.namespace}/{attributes.name}"
        self.asked.append(question)
        return AuthorizationDecision(question in self._allowed)


def context_of(user: JSON, *allowed: str, method: str = "PUT") -> tuple[RequestContext, Permissions]:
    permissions = Permissions(allowed)
    context = request_context(method, "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c/status")
    context.request.user, context.authorizer = user, permissions
    return context, permissions


@pytest.mark.parametrize(
    ("status", "old", "is_refused"),
    [
        ({"allocation": ALLOCATION}, {}, True),
        ({"reservedFor": [{"name": "a"}]}, {"reservedFor": []}, True),
        ({"allocation": ALLOCATION, "devices": [DEVICE]}, {"allocation": ALLOCATION, "reservedFor": []}, False),
    ],
)
def test_changed_allocation_needs_permission_for_binding(status: JSON, old: JSON, is_refused: bool):
    context, _ = context_of({"username": "alice"})
    causes = check_binding(context, status, old)
    assert bool(causes) is is_refused
    if causes:
        assert 'requires resource="resourceclaims/binding", verb="update" permission' in causes[0]["message"]
        assert 'cannot update resource "resourceclaims/binding"' in causes[0]["message"]
    context, _ = context_of({"username": "alice"}, "patch binding /", method="PATCH")
    assert check_binding(context, status, old) == []


def test_each_driver_with_changed_devices_needs_a_permission():
    others = [{**DEVICE, "driver": name} for name in ("b", "a", "same")]
    status = {"allocation": ALLOCATION, "devices": [DEVICE, *others]}
    old = {"devices": [others[2], {**DEVICE, "driver": "gone"}]}
    context, permissions = context_of({"username": "alice"}, "arbitrary-node:update driver ns/d")
    causes = check_devices(context, status, old)
    assert permissions.asked == [f"arbitrary-node:update driver ns/{driver}" for driver in ("a", "b", "d", "gone")]
    assert len(causes) == 3
    assert 'verb="[arbitrary-node:update]" permission' in causes[0]["message"]


@pytest.mark.parametrize(
    ("user", "allocation", "verbs"),
    [
        pytest.param(ROBOT, ALLOCATION, ["associated-node:update", "arbitrary-node:update"], id="on the node"),
        pytest.param({**ROBOT, "extra": {}}, ALLOCATION, ["arbitrary-node:update"], id="token without node"),
        pytest.param({**ROBOT, "username": "alice"}, ALLOCATION, ["arbitrary-node:update"], id="no ServiceAccount"),
        pytest.param(ROBOT, {}, ["arbitrary-node:update"], id="devices of every node"),
        pytest.param(
            ROBOT, {"nodeSelector": {"nodeSelectorTerms": [TERM, TERM]}}, ["arbitrary-node:update"], id="two terms"
        ),
    ],
)
def test_driver_on_the_node_of_the_claim_may_use_another_verb(user: JSON, allocation: JSON, verbs: list[str]):
    context, permissions = context_of(user)
    (cause,) = check_devices(context, {"allocation": allocation, "devices": [DEVICE]}, {})
    assert permissions.asked == [f"{verb} driver ns/d" for verb in verbs]
    assert f'verb="[{" ".join(verbs)}]"' in cause["message"]
    context, _ = context_of(user, f"{verbs[-1]} driver ns/d")
    assert check_devices(context, {"allocation": allocation, "devices": [DEVICE]}, {}) == []


async def test_claims_without_a_spec_are_refused_by_validation():
    api = InProcessApi()
    path = "/apis/resource.k8s.io/v1/namespaces/default"
    for plural in ("resourceclaims", "resourceclaimtemplates"):
        api.create(f"{path}/{plural}", {"metadata": {"name": "a"}})
    assert (
        api("PUT", f"{path}/resourceclaims/a/status", {"metadata": {"name": "a"}, "status": {"allocation": {}}})[0]
        == 200
    )
