"""Events of requests to an API server with an audit policy."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeloop.devcluster.api.audit_record import AuditRecord
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.audit.auditor import Auditor
from kubeloop.devcluster.audit.log_file import AuditLog
from kubeloop.devcluster.audit.policy import read_policy
from kubeloop.devcluster.server.apiserver import ServingSettings
from support.apiserver.api_requests import InProcessApi
from support.simulation.set_clock import SetClock

JSON = dict[str, Any]
MAPS = "/api/v1/namespaces/default/configmaps"
ALL_STAGES = "rules: [{level: %s}]"
COMPLETE = "omitStages: [RequestReceived], rules: [{level: %s}]"


class AuditedApi:
    """An API server with a policy, and the events of its log."""

    def __init__(self, folder: Path, rules: str, **options: Any) -> None:
        policy = folder / "policy.yaml"
        policy.write_text(f"{{apiVersion: audit.k8s.io/v1, kind: Policy, {rules}}}")
        self._log = folder / "audit.log"
        log = AuditLog(read_policy(policy), str(self._log))
        self.request = InProcessApi(token="secret", settings=ServingSettings(audit=log), **options)
        assert isinstance(self.request.server._auditor, Auditor)
        self._close = self.request.server.close_audit_log

    def __call__(self, method: str, path: str, body: Any = None, content_type: str = "", **headers: str) -> Any:
        return self.request(method, path, body, content_type, **{"authorization": "Bearer secret", **headers})

    def events(self) -> list[JSON]:
        """Return the events and clear the log."""
        events = [json.loads(line) for line in self._log.read_text().splitlines()]
        self._log.write_text("")
        return events

    def close(self) -> None:
        self._close()


@pytest.fixture
async def audited(tmp_path):
    opened: list[AuditedApi] = []

    def create(rules: str, **options: Any) -> AuditedApi:
        opened.append(AuditedApi(tmp_path, rules, **options))
        return opened[-1]

    yield create
    for api in opened:
        api.close()


Audited = Callable[..., AuditedApi]


async def test_event_has_the_fields_of_kubernetes(audited: Audited):
    api = audited(ALL_STAGES % "Metadata")
    headers = {"user_agent": "test", "x_forwarded_for": "10.0.0.1, x", "audit_id": "the-id"}
    api("POST", f"{MAPS}?fieldManager=m", {"metadata": {"name": "a"}}, **headers)
    received, complete = api.events()
    assert list(complete) == [
        "kind", "apiVersion", "level", "auditID", "stage", "requestURI", "verb", "user", "sourceIPs", "userAgent",
        "objectRef", "responseStatus", "requestReceivedTimestamp", "stageTimestamp", "annotations",
    ]  # fmt: skip
    times = {name: complete.pop(name) for name in ("requestReceivedTimestamp", "stageTimestamp")}
    assert times["requestReceivedTimestamp"] == received["requestReceivedTimestamp"] == received["stageTimestamp"]
    assert times["stageTimestamp"] >= times["requestReceivedTimestamp"]
    user = complete.pop("user")
    assert (user["username"], "system:masters" in user["groups"]) == ("admin", True)
    assert complete.pop("annotations")["authorization.k8s.io/decision"] == "allow"
    assert complete == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": "the-id",
        "stage": "ResponseComplete",
        "requestURI": f"{MAPS}?fieldManager=m",
        "verb": "create",
        "sourceIPs": ["10.0.0.1"],
        "userAgent": "test",
        "objectRef": {"resource": "configmaps", "namespace": "default", "name": "a", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": 201},
    }
    assert (received["stage"], received["objectRef"].get("name"), "responseStatus" in received) == (
        "RequestReceived", None, False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("level", "objects"),
    [("Metadata", []), ("Request", ["requestObject"]), ("RequestResponse", ["requestObject", "responseObject"])],
)
async def test_level_decides_objects(audited: Audited, level: str, objects: list[str]):
    api = audited(COMPLETE % level)
    api("POST", MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    (event,) = api.events()
    assert [name for name in ("requestObject", "responseObject") if name in event] == objects
    if "requestObject" in objects:
        request = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v"}}
        assert event["requestObject"] == request
    if "responseObject" in objects:
        assert event["responseObject"]["metadata"]["uid"]


async def test_requests_of_level_none_are_not_logged(audited: Audited):
    api = audited("rules: [{level: None, verbs: [get]}, {level: Metadata}]")
    api("GET", f"{MAPS}/a")
    assert api.events() == []
    api("GET", MAPS)
    assert [event["stage"] for event in api.events()] == ["RequestReceived", "ResponseComplete"]


@pytest.mark.parametrize("accept", ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"])
async def test_response_of_any_media_type_is_logged_as_json(audited: Audited, accept: str):
    api = audited(COMPLETE % "RequestResponse")
    api("POST", MAPS, {"metadata": {"name": "a"}})
    api.events()
    api.request.respond("GET", f"{MAPS}/a", accept=accept, authorization="Bearer secret")
    (event,) = api.events()
    assert event["responseObject"]["kind"] == "ConfigMap"
    assert event["responseObject"]["metadata"]["name"] == "a"


async def test_status_of_an_error_is_logged_at_every_level(audited: Audited):
    api = audited(COMPLETE % "Metadata")
    api("GET", f"{MAPS}/missing")
    (event,) = api.events()
    assert event["responseStatus"] == {
        "metadata": {},
        "status": "Failure",
        "message": 'configmaps "missing" not found',
        "reason": "NotFound",
        "details": {"name": "missing", "kind": "configmaps"},
        "code": 404,
    }
    assert "responseObject" not in event


async def test_managed_fields_are_omitted(audited: Audited):
    api = audited("omitStages: [RequestReceived], omitManagedFields: true, rules: [{level: RequestResponse}]")
    metadata = {"name": "a", "managedFields": []}
    api("POST", MAPS, {"metadata": metadata})
    assert "managedFields" not in api.events()[0]["responseObject"]["metadata"]
    api("GET", MAPS)
    (item,) = (item for item in api.events()[0]["responseObject"]["items"] if item["metadata"]["name"] == "a")
    assert "managedFields" not in item["metadata"]
    api("GET", MAPS, accept="application/json;as=Table;g=meta.k8s.io;v=v1")
    rows = api.events()[0]["responseObject"]["rows"]
    assert rows
    assert all("managedFields" not in row["object"]["metadata"] for row in rows)


async def test_patch_is_logged_as_sent(audited: Audited):
    api = audited(COMPLETE % "Request")
    api("POST", MAPS, {"metadata": {"name": "a"}})
    api.events()
    api("PATCH", f"{MAPS}/a", b'{"data": {"k": "v"}}', "application/merge-patch+json")
    (event,) = api.events()
    assert (event["verb"], event["requestObject"]) == ("patch", {"data": {"k": "v"}})


async def test_update_and_delete_log_version_and_options(audited: Audited):
    api = audited(COMPLETE % "Request")
    _, created = api("POST", MAPS, {"metadata": {"name": "a"}})
    api.events()
    api("PUT", f"{MAPS}/a", created)
    reference = api.events()[0]["objectRef"]
    metadata = created["metadata"]
    assert (reference["uid"], reference["resourceVersion"]) == (metadata["uid"], metadata["resourceVersion"])
    api("DELETE", f"{MAPS}/a", {"gracePeriodSeconds": 3})
    (event,) = api.events()
    assert event["requestObject"]["gracePeriodSeconds"] == 3
    assert event["responseStatus"]["status"] == "Success"


async def test_refused_credentials_are_logged(audited: Audited):
    api = audited(ALL_STAGES % "Metadata")
    api("GET", MAPS, authorization="Bearer wrong")
    (event,) = api.events()
    assert (event["stage"], event["user"]) == ("ResponseStarted", {})
    status = {"metadata": {}, "status": "Failure", "message": "Unauthorized", "reason": "Unauthorized", "code": 401}
    assert event["responseStatus"] == status


async def test_impersonated_user_is_logged(audited: Audited):
    api = audited("omitStages: [RequestReceived], rules: [{level: Metadata, users: [admin]}]")
    api("GET", "/version", impersonate_user="jane", impersonate_group="dev")
    (event,) = api.events()
    assert event["user"]["username"] == "admin"
    assert event["impersonatedUser"] == {"username": "jane", "groups": ["dev", "system:authenticated"]}


async def test_watch_is_logged_at_start_and_end(audited: Audited):
    api = audited(ALL_STAGES % "RequestResponse")
    api("POST", MAPS, {"metadata": {"name": "a"}})
    api.events()
    response = api.request.respond("GET", f"{MAPS}?watch=1", authorization="Bearer secret")
    assert [event["stage"] for event in api.events()] == ["RequestReceived", "ResponseStarted"]
    assert not isinstance(response.body, bytes)
    assert b'"ADDED"' in await anext(response.body)
    await response.body.aclose()  # type: ignore[attr-defined]
    (event,) = api.events()
    assert (event["stage"], event["verb"], event["responseStatus"]) == (
        "ResponseComplete", "watch", {"metadata": {}, "code": 200},
    )  # fmt: skip


async def test_exception_of_a_handler_is_a_panic(audited: Audited, monkeypatch):
    api = audited(ALL_STAGES % "Metadata")

    def fail(*_: object) -> None:
        raise ZeroDivisionError("no")

    monkeypatch.setattr(api.request.server._rest, "handle", fail)
    assert api("GET", MAPS)[0] == 500
    _, event = api.events()
    assert event["stage"] == "Panic"
    assert event["responseStatus"]["message"] == "APIServer panic'd: ZeroDivisionError('no')"


async def test_issued_token_is_annotated(audited: Audited):
    api = audited(COMPLETE % "Metadata")
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    api("POST", accounts, {"metadata": {"name": "robot"}})
    api("POST", f"{accounts}/robot/token", {})
    event = api.events()[-1]
    assert event["annotations"]["authentication.kubernetes.io/issued-credential-id"].startswith("JTI=")


async def test_tokens_of_secrets_are_annotated(audited: Audited):
    api = audited(COMPLETE % "Metadata")
    path = "/api/v1/namespaces/default"
    account = api("POST", f"{path}/serviceaccounts", {"metadata": {"name": "robot"}})[1]
    prefix, subject = "kubernetes.io/serviceaccount/", "system:serviceaccount:default:robot"
    claims = {
        "iss": "kubernetes/serviceaccount",
        "sub": subject,
        f"{prefix}namespace": "default",
        f"{prefix}secret.name": "s",
        f"{prefix}service-account.name": "robot",
        f"{prefix}service-account.uid": account["metadata"]["uid"],
    }
    token = api.request.server.token_key.sign(claims)
    data = {"token": b64encode(token.encode()).decode()}
    api("POST", f"{path}/secrets", {"metadata": {"name": "s"}, "type": "x", "data": data})
    api.events()
    api("GET", "/api", authorization=f"Bearer {token}")
    api("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token}})
    for event in api.events():
        annotations = {key: value for key, value in event["annotations"].items() if "legacy" in key}
        assert annotations == {
            "authentication.k8s.io/legacy-token": subject,
            "authentication.k8s.io/legacy-token-manual-secret": "s",
        }


async def test_deprecated_apis_are_annotated_at_the_end(audited: Audited):
    api = audited(ALL_STAGES % "Metadata")
    api("GET", "/api/v1/endpoints")
    begin, end = api.events()
    assert "annotations" not in begin
    assert end["annotations"]["k8s.io/deprecated"] == "true"
    api("GET", "/api/v1/endpoints", impersonate_user="nobody")  # 403: no handler is reached
    assert "k8s.io/deprecated" not in api.events()[-1]["annotations"]
    api("GET", MAPS)
    assert "k8s.io/deprecated" not in api.events()[-1]["annotations"]


async def test_slow_requests_are_annotated_with_their_latencies(audited: Audited, monkeypatch):
    clock = SetClock(datetime(2026, 1, 1, tzinfo=UTC))
    api = audited(COMPLETE % "Metadata", clock=clock)
    rest, prefix = api.request.server._rest, "apiserver.latency.k8s.io/"
    handle = rest.handle
    for seconds in (0.5, 1.5):

        def wait(context: RequestContext, seconds: float = seconds) -> Any:
            clock.moment += timedelta(seconds=seconds)
            return handle(context)

        monkeypatch.setattr(rest, "handle", wait)
        api("GET", MAPS)
    quick, slow = (event["annotations"] for event in api.events())
    assert not [key for key in quick if key.startswith(prefix)]
    assert slow[f"{prefix}total"] == "1.5s"
    assert f"{prefix}authentication" in slow


async def test_latency_of_webhooks_is_annotated(audited: Audited):
    record = AuditRecord("id", False, False, {})
    for layer in ("mutating-webhook", "validating-webhook"):
        for seconds in (0.25, 0.5, 0.25):
            record.note_latency(layer, seconds)
    assert record.latencies == {"mutating-webhook": 1.0, "validating-webhook": 0.5}


async def test_lines_are_compact_json(audited: Audited, tmp_path):
    api = audited(COMPLETE % "Metadata")
    api("GET", "/version")
    line = (tmp_path / "audit.log").read_bytes()
    assert line.startswith(b'{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":')
    assert msgspec.json.decode(line)["requestURI"] == "/version"


async def test_admission_policy_annotates_failures_and_values(audited: Audited):
    api = audited(COMPLETE % "Metadata")
    policies = "/apis/admissionregistration.k8s.io/v1"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]
    spec = {
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": "true"}, {"expression": "size(object.data) < 1", "message": "a < b"}],
        "auditAnnotations": [
            {"key": "size", "valueExpression": "string(size(object.data))"},
            {"key": "none", "valueExpression": "null"},
        ],
    }
    binding = {"policyName": "small", "validationActions": ["Audit"]}
    api("POST", f"{policies}/validatingadmissionpolicies", {"metadata": {"name": "small"}, "spec": spec})
    api("POST", f"{policies}/validatingadmissionpolicybindings", {"metadata": {"name": "b"}, "spec": binding})
    assert api("POST", MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})[0] == 201
    annotations = api.events()[-1]["annotations"]
    (failure,) = json.loads(escaped := annotations.pop("validation.policy.admission.k8s.io/validation_failure"))
    assert r"a \u003c b" in escaped
    assert failure == {
        "message": "a < b", "policy": "small", "binding": "b", "expressionIndex": 1, "validationActions": ["Audit"],
    }  # fmt: skip
    assert {key: value for key, value in annotations.items() if "authorization" not in key} == {"small/size": "1"}
