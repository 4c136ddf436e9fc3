import random
from itertools import count
from typing import Any

import pytest

from kubeloop.kube.client.transport import TransportError
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.errors import ServerUnreachable
from kubeloop.kube.objects.resources import (
    CONFIG_MAPS,
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)
from kubeloop.kube.user_error import UserError
from kubeloop.process.manifests import LAST_APPLIED, Manifest, applied_pods, apply
from kubeloop.tracing.recording.apply_recorder import MAX_OBJECTS, ApplyRecorder
from kubeloop.tracing.recording.reconcile_recorder import ReconcileRecorder
from kubeloop.tracing.sampling.samplers import Sampler
from kubeloop.tracing.spans.trace import Trace
from kubeloop.tracing.spans.traceparent import TRACEPARENT_ANNOTATION
from support.apiserver.fake_apiserver import FakeApiServer
from support.apiserver.faulty_transport import SentRequest, injected_error


def config_map(**metadata: str) -> Manifest:
    return Manifest("app.yaml", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}})


def apply_trace(finished: list[Trace], *, annotates: bool = False) -> ApplyRecorder:
    clock, rng = SystemClock(), random.Random(1)
    return ApplyRecorder(
        clock=clock,
        rng=rng,
        sampler=Sampler(),
        reconciles=ReconcileRecorder(clock=clock, rng=rng, annotates=annotates),
        on_finished=lambda trace, _sampled: finished.append(trace),
    )


@pytest.fixture
async def server() -> FakeApiServer:
    """Return an API server that carries out the first write, whose response is lost."""
    server, writes = FakeApiServer(), count()
    server.transport.lose_response = lambda method, path: method != "GET" and next(writes) == 0
    return server


def break_first_write(server: FakeApiServer) -> None:
    """Let the connection break before the server handles the first write."""

    async def before_request(request: SentRequest) -> None:
        if request.method != "GET" and len(writes(server)) == 1:
            raise TransportError("connection reset", request_sent=True)

    server.transport.before_request = before_request


def writes(server: FakeApiServer) -> list[SentRequest]:
    return [request for request in server.transport.sent if request.method != "GET"]


@pytest.mark.parametrize("carried_out", [True, False])
async def test_apply_continues_after_a_lost_response(server: FakeApiServer, carried_out: bool) -> None:
    if not carried_out:
        server.transport.lose_response = lambda method, path: False
        break_first_write(server)
    assert await apply(server.client, [config_map(name="app")]) == [("configmap/app", "created")]
    assert len(writes(server)) == 2
    assert server.names(CONFIG_MAPS) == ["app"]


async def test_generated_name_is_in_the_outcome() -> None:
    server = FakeApiServer()
    ((title, outcome),) = await apply(server.client, [config_map(generateName="app-")])
    assert (title, outcome) == (f"configmap/{server.names(CONFIG_MAPS)[0]}", "created")
    assert len(title) == len("configmap/app-xxxxx")


async def test_warnings_of_the_server_are_reported_once() -> None:
    server, warnings = FakeApiServer(), list[str]()
    spec = {"containers": [{"name": "c", "image": "i", "env": [{"name": 'A"', "value": "\u00e9"}] * 1}]}
    metadata = {"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "runtime/default"}}
    pods = [
        Manifest("a.yaml", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"name": name}, "spec": spec})
        for name in ("a", "b")
    ]
    await apply(server.client, pods, on_warning=warnings.append)
    assert len(warnings) == len(set(warnings)) == 1
    assert "seccomp" in warnings[0]


async def test_apply_does_not_retry_generate_name(server: FakeApiServer) -> None:
    with pytest.raises(ServerUnreachable):
        await apply(server.client, [config_map(generateName="app-")])
    assert len(writes(server)) == 1


async def test_apply_trace_records_an_unknown_outcome(server: FakeApiServer) -> None:
    traces: list[Trace] = []
    trace = apply_trace(traces)
    with pytest.raises(ServerUnreachable) as raised:
        await apply(server.client, [config_map(generateName="app-")], trace=trace)
    (applied,) = traces
    assert [span.error for span in applied.spans] == [str(raised.value)] * 2
    assert applied.spans[1].attributes["kubeloop.outcome"] == "unknown"


async def test_apply_reports_configured_or_unchanged(server: FakeApiServer) -> None:
    await apply(server.client, [config_map(name="app")])
    assert await apply(server.client, [config_map(name="app")]) == [("configmap/app", "unchanged")]
    other = config_map(name="app")
    other.body["data"] = {"c": "d"}
    assert await apply(server.client, [other]) == [("configmap/app", "configured")]
    stored = await server.client.get(CONFIG_MAPS, "app", "default")
    assert stored["data"] == {"c": "d"}  # fields removed from the manifest are removed


@pytest.mark.parametrize(
    ("data", "code", "message", "hint"),
    [
        pytest.param({"a": [1]}, 0, ".data.a: expected string, got ", "correct the field in the manifest", id="type"),
        pytest.param({"a/b": ""}, 0, 'Invalid value: "a/b"', "correct the manifest", id="value"),
        pytest.param({}, 500, "injected error 500", "this is an error of the server", id="server"),
    ],
)
async def test_error_of_apply_says_who_has_to_correct_what(
    data: dict[str, Any], code: int, message: str, hint: str
) -> None:
    server, manifest = FakeApiServer(), config_map(name="app")
    manifest.body["data"] = data
    if code:
        server.transport.reject = lambda method, path: injected_error(code) if method == "PATCH" else None
    with pytest.raises(UserError) as raised:
        await apply(server.client, [manifest])
    assert message in str(raised.value)
    assert str(raised.value).startswith("app.yaml: ")
    assert raised.value.hint.startswith(hint)


@pytest.mark.parametrize(("remain", "hint"), [(True, "the next run continues"), (False, "--data-dir keeps objects")])
async def test_refused_object_is_reported_with_those_applied_before(remain: bool, hint: str) -> None:
    server, refused = FakeApiServer(), config_map(name="c")
    refused.body["data"] = {"a/b": ""}
    await apply(server.client, [config_map(name="b")])
    manifests = [config_map(generateName="a-"), config_map(name="b"), refused, config_map(name="d")]
    with pytest.raises(UserError) as raised:
        await apply(server.client, manifests, remain=remain)
    problem, *applied = str(raised.value).splitlines()
    (generated,) = (name for name in server.names(CONFIG_MAPS) if name.startswith("a-"))
    assert 'Invalid value: "a/b"' in problem
    assert applied == [
        "  before it were applied:",
        f"    configmap/{generated} created",
        "    configmap/b unchanged",
    ]
    assert hint in raised.value.hint
    assert sorted(server.names(CONFIG_MAPS)) == [generated, "b"]


async def test_applied_pods_have_their_generated_names() -> None:
    containers = [{"name": "c", "image": "i"}]
    bodies = [{"generateName": "a-"}, {"name": "b", "namespace": "other"}, {"generateName": "c-", "namespace": "other"}]
    manifests = [
        Manifest("", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}})
        for metadata in bodies
    ]
    server = FakeApiServer()
    other = Manifest("", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    manifests = [config_map(name="x"), *manifests, other]
    pods = applied_pods(manifests, await apply(server.client, manifests))
    assert pods == {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in server.objects(PODS)}


def definition() -> Manifest:
    return Manifest(
        "app.yaml",
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "gears.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"plural": "gears", "kind": "Gear"},
                "versions": [
                    {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
                ],
            },
        },
    )


def of_kind(kind: str) -> Manifest:
    return Manifest("app.yaml", {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "x"}})


async def test_apply_creates_definitions_before_their_objects(server: FakeApiServer) -> None:
    assert await apply(server.client, [of_kind("Gear"), config_map(name="app"), definition()]) == [
        ("customresourcedefinition.apiextensions.k8s.io/gears.example.com", "created"),
        ("gear.example.com/x", "created"),
        ("configmap/app", "created"),
    ]


async def test_apply_rejects_unknown_kinds_before_any_request(server: FakeApiServer) -> None:
    with pytest.raises(UserError, match="Wheel"):
        await apply(server.client, [definition(), of_kind("Gear"), of_kind("Wheel")])
    assert writes(server) == []


def test_root_span_has_the_rejection_beyond_the_span_limit() -> None:
    traces: list[Trace] = []
    trace = apply_trace(traces)
    for number in range(MAX_OBJECTS + 1):
        error = "no" if number == MAX_OBJECTS else ""
        trace.end(trace.begin(), "Pod", "default", f"web-{number}", "refused" if error else "created", error)
    trace.finish()
    assert traces[0].root.error == "no"
    assert len(traces[0].spans) == 1 + MAX_OBJECTS


@pytest.mark.parametrize(("size", "has_annotation"), [(200_000, True), (300_000, False)])
async def test_object_without_room_for_the_last_applied_annotation(size: int, has_annotation: bool) -> None:
    server = FakeApiServer()
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app"}, "data": {"a": "x" * size}}
    assert await apply(server.client, [Manifest("app.yaml", body)]) == [("configmap/app", "created")]
    (created,) = server.objects(CONFIG_MAPS)
    assert (LAST_APPLIED in created["metadata"].get("annotations", {})) is has_annotation


POD_TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "image": "app:1"}]},
}
SELECTED = {"selector": {"matchLabels": {"app": "web"}}, "template": POD_TEMPLATE}
JOB_SPEC = {"template": {"spec": {**POD_TEMPLATE["spec"], "restartPolicy": "Never"}}}
WORKLOADS: list[tuple[Resource[Any], dict[str, Any]]] = [
    (DEPLOYMENTS, SELECTED),
    (REPLICA_SETS, SELECTED),
    (REPLICATION_CONTROLLERS, {"selector": {"app": "web"}, "template": POD_TEMPLATE}),
    (STATEFUL_SETS, {**SELECTED, "serviceName": "web"}),
    (DAEMON_SETS, SELECTED),
    (JOBS, JOB_SPEC),
    (CRON_JOBS, {"schedule": "@daily", "jobTemplate": {"spec": JOB_SPEC}}),
]


@pytest.mark.parametrize("annotates", [False, True])
@pytest.mark.parametrize(("resource", "spec"), WORKLOADS, ids=[resource.kind for resource, _ in WORKLOADS])
async def test_apply_annotates_workloads_only_if_requested(
    resource: Resource[Any], spec: dict[str, Any], annotates: bool
) -> None:
    server, traces = FakeApiServer(), list[Trace]()
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "web"}, "spec": spec}
    manifests = [Manifest("app.yaml", body), config_map(name="app")]
    await apply(server.client, manifests, trace=apply_trace(traces, annotates=annotates))
    (created,), (other,) = server.objects(resource), server.objects(CONFIG_MAPS)
    annotation = created["metadata"]["annotations"].get(TRACEPARENT_ANNOTATION, "")
    assert annotation.split("-")[2:3] == ([traces[0].spans[1].span_id] if annotates else [])
    assert TRACEPARENT_ANNOTATION not in other["metadata"]["annotations"]
