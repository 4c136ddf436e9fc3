"""Bootstrap tokens: users, and Secrets that are not accepted."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.devcluster.authentication.bootstrap_tokens import bootstrap_token_user
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import SECRETS

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = "abcdef.0123456789abcdef"
DATA = {"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"}
USER = {"username": "system:bootstrap:abcdef", "groups": ["system:bootstrappers"]}


def user(token: str = TOKEN, *, secret: Any = None, **data: str) -> Any:
    store = ObjectStore(seconds=lambda: 0.0)
    texts = {**DATA, **{name.replace("_", "-"): text for name, text in data.items()}}
    metadata = {"name": "bootstrap-token-abcdef", "namespace": "kube-system"}
    encoded = {name: b64encode(text.encode()).decode() for name, text in texts.items()}
    stored = {"metadata": metadata, "type": "bootstrap.kubernetes.io/token", "data": encoded, **(secret or {})}
    store.create(SECRETS, stored)
    return bootstrap_token_user(store, token, NOW)


@pytest.mark.parametrize(
    ("data", "groups"),
    [
        pytest.param({}, [], id="group of all"),
        pytest.param({"expiration": "2026-01-01T00:00:01Z"}, [], id="not expired"),
        pytest.param(
            {"auth_extra_groups": "system:bootstrappers:b,system:bootstrappers:a"},
            ["system:bootstrappers:a", "system:bootstrappers:b"],
            id="more groups",
        ),
    ],
)
def test_user_of_a_valid_token(data: Any, groups: list[str]):
    assert user(**data) == {**USER, "groups": ["system:bootstrappers", *groups]}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"token": "abcdef.1123456789abcdef"}, id="wrong secret"),
        pytest.param({"token": "bbcdef.0123456789abcdef"}, id="unknown id"),
        pytest.param({"token": "abcdef"}, id="no token"),
        pytest.param({"token_id": "bbcdef"}, id="id of another name"),
        pytest.param({"expiration": "2026-01-01T00:00:00Z"}, id="expired"),
        pytest.param({"expiration": "2099-01-01"}, id="expiration without time"),
        pytest.param({"usage_bootstrap_authentication": "yes"}, id="not for authentication"),
        pytest.param({"auth_extra_groups": "system:masters"}, id="group of others"),
        pytest.param({"secret": {"type": "Opaque"}}, id="other type"),
        pytest.param({"secret": {"data": None}}, id="no data"),
    ],
)
def test_other_tokens_are_not_accepted(changes: Any):
    assert user(**changes) is None


def test_token_of_a_secret_in_deletion_is_not_accepted():
    metadata = {"name": "bootstrap-token-abcdef", "namespace": "kube-system", "deletionTimestamp": "x"}
    assert user(secret={"metadata": metadata}) is None
