"""Authentication of requests by their bearer token."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from datetime import UTC, datetime, timedelta

import pytest

from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.authentication.authenticator import Authenticator
from kubeloop.devcluster.authentication.service_account_token_key import TokenKey
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import SERVICE_ACCOUNTS
from support.apiserver.api_requests import InProcessApi
from support.simulation.set_clock import SetClock


@pytest.fixture
async def api() -> InProcessApi:
    return InProcessApi(token="right", settings=ServingSettings(authorization_modes=("AlwaysAllow",)))


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", "Basic YTpi", "right", "bearer  "])
async def test_request_without_a_valid_token_gets_401(api: InProcessApi, header: str):
    headers = {"authorization": header} if header else {}
    status, response = api("GET", "/api/v1/namespaces", **headers)
    assert (status, response) == (
        401,
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "Unauthorized",
            "reason": "Unauthorized",
            "code": 401,
        },
    )
    assert api("GET", "/healthz", **headers)[0] == api("GET", "/version", **headers)[0] == (401 if header else 200)


@pytest.mark.parametrize(
    ("header", "status"),
    [
        pytest.param("", 403, id="none"),
        pytest.param("Bearer", 403, id="no token"),
        pytest.param("bearer  ", 403, id="empty token"),
        pytest.param("Basic YTpi", 403, id="another scheme"),
        pytest.param("Bearer wrong", 401, id="wrong token"),
    ],
)
async def test_request_without_credentials_is_anonymous(header: str, status: int):
    api = InProcessApi(token="right")
    headers = {"authorization": header} if header else {}
    code, response = api("GET", "/api/v1/namespaces", **headers)
    assert code == status
    assert ('User "system:anonymous" cannot list' in response["message"]) == (status == 403)


async def test_server_without_token_authenticates_service_accounts():
    api = InProcessApi()
    api.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
    request = api.create("/api/v1/namespaces/default/serviceaccounts/robot/token", {"spec": {}})
    reviews, robot = "/apis/authentication.k8s.io/v1/selfsubjectreviews", f"Bearer {request['status']['token']}"
    review = api("POST", reviews, {}, authorization=robot)[1]
    assert review["status"]["userInfo"]["username"] == "system:serviceaccount:default:robot"
    assert api("POST", reviews, {})[1]["status"]["userInfo"]["username"] == "admin"
    assert api("POST", reviews, {}, authorization="Bearer wrong")[0] == 401


def websocket(*protocols: str) -> dict[str, str]:
    """Return the headers of a WebSocket handshake that offers these protocols."""
    return {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "origin": "http://localhost",
        "sec_websocket_key": "eHh4eHh4eHh4eHh4eHh4eA==",
        "sec_websocket_version": "13",
        "sec_websocket_protocol": ", ".join(protocols),
    }


TOKEN = "base64url.bearer.authorization.k8s.io." + urlsafe_b64encode(b"right").decode().rstrip("=")
WRONG = "base64url.bearer.authorization.k8s.io." + urlsafe_b64encode(b"wrong").decode().rstrip("=")


@pytest.mark.parametrize(
    ("protocols", "status"),
    [
        pytest.param((TOKEN, "binary.k8s.io"), 101, id="token"),
        pytest.param(("binary.k8s.io", TOKEN), 101, id="token at the end"),
        pytest.param((WRONG, "binary.k8s.io"), 401, id="wrong token"),
        pytest.param((TOKEN,), 401, id="no other protocol"),
        pytest.param((TOKEN, TOKEN, "binary.k8s.io"), 401, id="two tokens"),
        pytest.param((f"{TOKEN}=", "binary.k8s.io"), 401, id="padding"),
        pytest.param(("base64url.bearer.authorization.k8s.io.gICA", "binary.k8s.io"), 401, id="no UTF-8"),
        pytest.param(("binary.k8s.io",), 401, id="no token"),
    ],
)
async def test_token_in_the_protocols_of_a_websocket(api: InProcessApi, protocols: tuple[str, ...], status: int):
    response = api.respond("GET", "/api/v1/namespaces?watch=1", **websocket(*protocols))
    assert response.status == status
    if status == 101:
        assert dict(response.headers).get("Sec-WebSocket-Protocol") == "binary.k8s.io"
    no_upgrade = {"sec_websocket_protocol": ", ".join(protocols)}
    assert api("GET", "/api/v1/namespaces", **no_upgrade)[0] == 401


@pytest.mark.parametrize("header", ["", "Bearer wrong", "Basic cmlnaHQ6", "Bearer ", "Bearer right2", "Bearer é"])
async def test_only_health_and_version_are_open(api: InProcessApi, header: str):
    headers = {"authorization": header} if header else {}
    authenticated = {"authorization": "Bearer right", "accept": "application/json"}
    documents = json.loads(api.respond("GET", "/openapi/v3", **authenticated).body)["paths"].values()
    urls = [document["serverRelativeURL"] for document in documents]
    paths = {path for url in urls for path in json.loads(api.respond("GET", url, **authenticated).body)["paths"]}
    paths |= {
        *json.loads(api.respond("GET", "/", **authenticated).body)["paths"],
        "/flagz",
        "/statusz",
        "/openapi/v2",
        "/metrics/slis",
        "/",
    }
    paths |= {
        "/api/v1/watch/pods",
        "/apis/metrics.k8s.io/v1beta1/pods",
        "/nowhere",
        "/apis/x.io/v1/y",
        "/healthz/../api",
    }
    open_paths = set()
    for path in sorted(path.replace("{namespace}", "default").replace("{name}", "a") for path in paths):
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            if api(method, path, {}, **headers)[0] != 401:
                open_paths.add(path)
    open_to_all = set() if header else {"/healthz", "/livez", "/readyz", "/version"}
    assert {path.rstrip("/") for path in open_paths} == open_to_all
    assert len(paths) > 400


NOW = datetime(2026, 1, 1, tzinfo=UTC)
ADMINISTRATOR = {"username": "admin", "uid": "admin", "groups": ["system:masters", "system:authenticated"]}


def authenticator(clock: SetClock, key: TokenKey, token: str | None) -> Authenticator:
    store = ObjectStore(seconds=lambda: 0.0)
    store.create(SERVICE_ACCOUNTS, {"metadata": {"name": "robot", "namespace": "ns", "uid": "u"}})
    return Authenticator(store, clock, token, key)


@pytest.mark.parametrize(
    ("token", "header"),
    [pytest.param("right", "Bearer right", id="token"), pytest.param(None, "", id="server without a token")],
)
def test_administrator_is_authenticated(token: str | None, header: str):
    assert authenticator(SetClock(NOW), TokenKey(), token).user(ApiRequest("GET", "/"), header) == ADMINISTRATOR


@pytest.mark.parametrize(
    ("offset_seconds", "uid", "error"),
    [
        pytest.param(-61, "u", "service account token is not valid yet", id="before nbf"),
        pytest.param(-60, "u", "", id="within the leeway before nbf"),
        pytest.param(660, "u", "", id="within the leeway after exp"),
        pytest.param(661, "u", "service account token has expired", id="expired"),
        pytest.param(0, "other", "service account UID (u) does not match claim (other)", id="recreated account"),
    ],
)
def test_validity_of_a_service_account_token(offset_seconds: int, uid: str, error: str):
    clock, key = SetClock(NOW), TokenKey()
    begin = int(NOW.timestamp())
    claims = {
        "aud": ["https://kubernetes.default.svc"],
        "iss": "https://kubernetes.default.svc",
        "exp": begin + 600,
        "nbf": begin,
        "jti": "id",
        "sub": "system:serviceaccount:ns:robot",
        "kubernetes.io": {"namespace": "ns", "serviceaccount": {"name": "robot", "uid": uid}},
    }
    token = key.sign(claims)
    clock.moment = NOW + timedelta(seconds=offset_seconds)
    status = authenticator(clock, key, "right").token_review_status(token, (), ApiRequest("POST", "/"))
    assert status.get("authenticated", False) is not bool(error)
    if error:
        assert status == {"user": {}, "error": f"[invalid bearer token, {error}]"}


@pytest.mark.parametrize("server_token", [None, "right"])
def test_token_review_accepts_no_unknown_token(server_token: str | None):
    status = authenticator(SetClock(NOW), TokenKey(), server_token).token_review_status(
        "wrong", (), ApiRequest("POST", "/")
    )
    assert status == {"user": {}, "error": "invalid bearer token"}
