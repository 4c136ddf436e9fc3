"""Service account tokens: signature, claims, and validity while the account and the bound object exist."""

from __future__ import annotations

import hashlib
import random
from base64 import urlsafe_b64decode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.authentication.service_account_token_key import TokenKey, TokenSettings
from kubeloop.devcluster.authentication.service_account_token_requests import create_token, default_token_duration
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.resources import PODS, SERVICE_ACCOUNTS
from support.apiserver.api_requests import InProcessApi
from support.simulation.set_clock import SetClock

JSON = dict[str, Any]
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


class TokenApi:
    """Requests with bearer tokens to a server whose clock the test sets."""

    def __init__(self) -> None:
        self.clock = SetClock(NOW)
        self._api = InProcessApi(token="secret", clock=self.clock)

    def __call__(self, method: str, path: str, body: Any = None, *, bearer: str = "secret") -> tuple[int, JSON]:
        return self._api(method, path, body, authorization=f"Bearer {bearer}")

    def token(self, **spec: Any) -> str:
        status, response = self("POST", f"{ACCOUNTS}/robot/token", {"spec": spec})
        assert status == 201, response
        token: str = response["status"]["token"]
        return token

    def user(self, token: str) -> JSON | None:
        """The user that a token authenticates; None for an invalid token."""
        status, response = self("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, bearer=token)
        user: JSON | None = response["status"]["userInfo"] if status == 201 else None
        assert status in (201, 401)
        return user

    def uid(self, path: str) -> str:
        uid: str = self("GET", path)[1]["metadata"]["uid"]
        return uid


@pytest.fixture
async def api() -> TokenApi:
    api = TokenApi()
    assert api("POST", ACCOUNTS, {"metadata": {"name": "robot"}})[0] == 201
    return api


def base64url_decode(part: str) -> bytes:
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


async def test_token_authenticates_its_service_account(api: TokenApi):
    token = api.token()
    claims = msgspec.json.decode(base64url_decode(token.split(".")[1]))
    assert api.user(token) == {
        "username": "system:serviceaccount:default:robot",
        "uid": api.uid(f"{ACCOUNTS}/robot"),
        "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": [f"JTI={claims['jti']}"]},
    }
    assert api("GET", "/api", bearer=token)[0] == 200


async def test_token_is_signed_with_the_published_key(api: TokenApi):
    token = api.token(expirationSeconds=600)
    (key,) = api("GET", "/openid/v1/jwks")[1]["keys"]
    signing_input, _, signature = token.rpartition(".")
    header, claims = (msgspec.json.decode(base64url_decode(part)) for part in signing_input.split("."))
    x, y = (int.from_bytes(base64url_decode(key[name]), "big") for name in "xy")
    public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    raw = base64url_decode(signature)
    der = utils.encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    public.verify(der, signing_input.encode(), ec.ECDSA(hashes.SHA256()))
    assert header == {"alg": "ES256", "kid": key["kid"]}
    assert len(base64url_decode(key["kid"])) == hashlib.sha256().digest_size
    uid, issued_at = api.uid(f"{ACCOUNTS}/robot"), int(NOW.timestamp())
    assert len(claims.pop("jti")) == 36
    assert claims == {
        "aud": ["https://kubernetes.default.svc"],
        "exp": issued_at + 600,
        "iat": issued_at,
        "iss": "https://kubernetes.default.svc",
        "kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "robot", "uid": uid}},
        "nbf": issued_at,
        "sub": "system:serviceaccount:default:robot",
    }


async def test_token_bound_to_a_pod_names_the_pod_and_its_node(api: TokenApi):
    pods = "/api/v1/namespaces/default/pods"
    spec = {"containers": [{"name": "c", "image": "i"}], "serviceAccountName": "robot", "nodeName": "n"}
    assert api("POST", pods, {"metadata": {"name": "p"}, "spec": spec})[0] == 201
    user = api.user(api.token(boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p"}))
    assert user is not None
    del user["extra"]["authentication.kubernetes.io/credential-id"]
    assert user["extra"] == {
        "authentication.kubernetes.io/node-name": ["n"],
        "authentication.kubernetes.io/pod-name": ["p"],
        "authentication.kubernetes.io/pod-uid": [api.uid(f"{pods}/p")],
    }


def with_bad_signature(api: TokenApi, token: str) -> str:
    signing_input, _, signature = token.rpartition(".")
    return f"{signing_input}.{'B' if signature[0] == 'A' else 'A'}{signature[1:]}"


def account_deleted(api: TokenApi, token: str) -> str:
    assert api("DELETE", f"{ACCOUNTS}/robot")[0] == 200
    return token


def expired(api: TokenApi, token: str) -> str:
    api.clock.moment = NOW + timedelta(seconds=3600 + 61)
    return token


def other_audience(api: TokenApi, _token: str) -> str:
    return api.token(audiences=["vault"])


def bound_secret_deleted(api: TokenApi, _token: str) -> str:
    secrets = "/api/v1/namespaces/default/secrets"
    assert api("POST", secrets, {"metadata": {"name": "s"}})[0] == 201
    token = api.token(boundObjectRef={"kind": "Secret", "apiVersion": "v1", "name": "s"})
    assert api.user(token) is not None
    assert api("DELETE", f"{secrets}/s")[0] == 200
    return token


def malformed(_api: TokenApi, _token: str) -> str:
    return "a.b.c"


@pytest.mark.parametrize(
    ("invalidate", "error"),
    [
        (with_bad_signature, ""),
        (account_deleted, 'serviceaccounts "robot" not found'),
        (expired, "service account token has expired"),
        (
            other_audience,
            'token audiences ["vault"] is invalid for the target audiences ["https://kubernetes.default.svc"]',
        ),
        (bound_secret_deleted, "service account token has been invalidated"),
        (malformed, ""),
    ],
)
async def test_invalid_token_is_rejected(api: TokenApi, invalidate: Callable[[TokenApi, str], str], error: str):
    token = api.token()
    assert api.user(token) is not None
    invalid = invalidate(api, token)
    assert api.user(invalid) is None
    review = {"spec": {"token": invalid}}
    status = api("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)[1]["status"]
    message = "invalid bearer token"
    assert status == {"user": {}, "error": f"[{message}, {error}]" if error else message}


async def test_token_review_returns_the_matching_audiences(api: TokenApi):
    review = {"spec": {"token": api.token(audiences=["vault", "mail"]), "audiences": ["mail", "door"]}}
    status = api("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)[1]["status"]
    assert (status["authenticated"], status["audiences"]) == (True, ["mail"])
    assert status["user"]["username"] == "system:serviceaccount:default:robot"


ROBOT = {"metadata": {"name": "robot", "namespace": "ns", "uid": "u"}}
CONFLICT = 'Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "robot": '


def create(metadata: JSON, **spec: Any) -> JSON:
    """Create a token for the service account ns/robot; ns/p is a pod of another account."""
    store = ObjectStore(seconds=lambda: 0.0)
    store.create(SERVICE_ACCOUNTS, ROBOT)
    store.create(PODS, {"metadata": {"name": "p", "namespace": "ns", "uid": "p"}, "spec": {}})
    obj: JSON = {"metadata": metadata, "spec": spec}
    default_token_duration(obj)
    return create_token(store, "robot", "ns", obj, NOW, random.Random(1), TokenKey(), [])


@pytest.mark.parametrize(
    ("metadata", "spec", "code", "message"),
    [
        pytest.param(
            {"name": "x"},
            {},
            422,
            'TokenRequest.authentication.k8s.io "robot" is invalid: metadata.name: Invalid value: "x": must match the '
            "service account name if specified",
            id="another name",
        ),
        pytest.param(
            {"uid": "x"},
            {},
            409,
            f"{CONFLICT}the UID in the token request (x) does not match the UID of the service account (u)",
            id="another uid",
        ),
        pytest.param(
            {},
            {"expirationSeconds": 599},
            422,
            'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 599: may not '
            "specify a duration less than 10 minutes",
            id="too short",
        ),
        pytest.param(
            {},
            {"boundObjectRef": {"kind": "Secret", "apiVersion": "apps/v1", "name": "s"}},
            400,
            "cannot bind token to object of type apps/v1, Kind=Secret",
            id="unsupported kind",
        ),
        pytest.param(
            {},
            {"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "s"}},
            404,
            'secrets "s" not found',
            id="missing secret",
        ),
        pytest.param(
            {},
            {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}},
            400,
            'cannot bind token for serviceaccount "robot" to pod running with different serviceaccount name.',
            id="pod of another account",
        ),
    ],
)
def test_token_request_is_refused(metadata: JSON, spec: JSON, code: int, message: str):
    with pytest.raises(StatusError) as raised:
        create(metadata, **spec)
    assert (raised.value.code, raised.value.message) == (code, message)


def test_token_expires_after_an_hour_by_default():
    created = create({})
    assert created["spec"]["expirationSeconds"] == 3600
    assert created["status"]["expirationTimestamp"] == "2026-05-01T13:00:00Z"


@pytest.mark.parametrize("checked", [True, False])
async def test_uid_of_another_account_is_an_error_or_a_warning(checked: bool):
    gates = FeatureGates({"TokenRequestServiceAccountUIDValidation": checked})
    api = InProcessApi(settings=ServingSettings(feature_gates=gates))
    uid = api.create(ACCOUNTS, {"metadata": {"name": "robot"}})["metadata"]["uid"]
    status, response = api("POST", f"{ACCOUNTS}/robot/token", {"metadata": {"uid": "another"}})
    mismatch = f"the UID in the token request (another) does not match the UID of the service account ({uid})"
    if checked:
        assert status == 409
        assert response["message"].endswith(mismatch)
    else:
        assert (status, response["metadata"]["uid"]) == (201, "another")
        assert [warning.partition(mismatch)[1] for warning in api.warnings] == [mismatch]
        assert api("POST", f"{ACCOUNTS}/robot/token", {"metadata": {"uid": uid}})[0] == 201
        assert api.warnings == []


@pytest.mark.parametrize(
    ("settings", "audiences", "seconds", "warns_after"),
    [
        pytest.param(TokenSettings(), ["https://kubernetes.default.svc"], 365 * 24 * 3600, 3607, id="extended"),
        pytest.param(TokenSettings(extends_expiration=False), ["https://kubernetes.default.svc"], 3607, None, id="off"),
        pytest.param(TokenSettings(), ["vault"], 3607, None, id="another audience"),
    ],
)
def test_token_that_kubelet_requests_is_valid_for_a_year(
    settings: TokenSettings, audiences: list[str], seconds: int, warns_after: int | None
):
    store = ObjectStore(seconds=lambda: 0.0)
    store.create(SERVICE_ACCOUNTS, ROBOT)
    pod = {"metadata": {"name": "p", "namespace": "ns", "uid": "p"}, "spec": {"serviceAccountName": "robot"}}
    store.create(PODS, pod)
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
    key = TokenKey(settings=settings)
    obj = {"metadata": {}, "spec": {"audiences": audiences, "expirationSeconds": 3607, "boundObjectRef": reference}}
    created = create_token(store, "robot", "ns", obj, NOW, random.Random(1), key, [])
    claims = key.claims(created["status"]["token"])
    assert claims is not None
    assert claims["exp"] - claims["iat"] == seconds
    assert claims["kubernetes.io"].get("warnafter") == (warns_after and claims["iat"] + warns_after)
    assert created["status"]["expirationTimestamp"] == "2026-05-01T13:00:07Z"


async def test_token_is_limited_to_the_longest_validity():
    settings = ServingSettings(tokens=TokenSettings(max_seconds=700, issuers=("https://a.example", "b")))
    api = InProcessApi(settings=settings)
    api("POST", ACCOUNTS, {"metadata": {"name": "robot"}})
    response = api.respond("POST", f"{ACCOUNTS}/robot/token", body=b'{"spec": {"expirationSeconds": 800}}')
    assert dict(response.headers)["Warning"] == '299 - "requested expiration of 800 seconds shortened to 700 seconds"'
    created = msgspec.json.decode(response.body)
    assert (created["spec"]["expirationSeconds"], created["spec"]["audiences"]) == (700, ["https://a.example", "b"])
