"""HTTP extenders against a test server: filter, prioritize, bind, preempt, errors, TLS and managed resources."""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kubeloop.kube.objects.api_types import Pod, convert
from kubeloop.kube.objects.resources import NODES
from kubeloop.kube.user_error import UserError
from kubeloop.scheduler.api.extender import ExtenderError
from kubeloop.scheduler.cache.node_info import NodeInfo
from kubeloop.scheduler.config.types import ExtenderConfiguration, ExtenderTLS, ManagedResource
from kubeloop.scheduler.extenders.extender import HTTPExtender
from kubeloop.scheduler.extenders.full_objects import FullObjects

Responses = dict[str, Callable[[Any], Any]]


@pytest.fixture
async def server() -> AsyncIterator[tuple[str, Responses, list[tuple[str, Any]]]]:
    """Start an extender. Yields (URL prefix, response functions by verb, received requests)."""
    responses: Responses = {}
    requests: list[tuple[str, Any]] = []

    async def handle(request: web.Request) -> web.Response:
        verb, body = request.match_info["verb"], await request.json()
        requests.append((verb, body))
        if verb not in responses:
            return web.Response(status=500)
        result = responses[verb](body)
        return web.json_response(await result if inspect.isawaitable(result) else result)

    app = web.Application()
    app.router.add_post("/scheduler/{verb}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield f"http://127.0.0.1:{port}/scheduler", responses, requests
    await runner.cleanup()


class PreemptionMetrics:
    """Metrics that record the number of victims of each preemption."""

    def __init__(self) -> None:
        self.preemptions: list[int] = []

    def preemption_victims(self, count: int) -> None:
        self.preemptions.append(count)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def test_extender_filters_and_prioritizes_nodes(server, cluster, scheduling):
    url, responses, requests = server
    for name in ("a", "b", "c"):
        cluster.node(name)
    responses["filter"] = lambda body: {
        "nodes": {"items": [item for item in body["Nodes"]["items"] if item["metadata"]["name"] != "c"]},
        "failedNodes": {"c": "not today"},
    }
    responses["prioritize"] = lambda body: [{"host": "a", "score": 0}, {"host": "b", "score": 10}]
    config = ExtenderConfiguration(url, filter_verb="filter", prioritize_verb="prioritize", weight=100)
    async with scheduling(extenders=(config,)):
        cluster.pod("p")
        await until(lambda: bool(cluster.bindings))
    assert cluster.bindings == [("default/p", "b")]
    assert [verb for verb, _ in requests] == ["filter", "prioritize"]
    assert requests[0][1]["Pod"]["metadata"]["name"] == "p"


async def test_node_cache_capable_extender_receives_names(server, cluster, scheduling):
    url, responses, requests = server
    cluster.node("a")
    cluster.node("b")
    responses["filter"] = lambda body: {"nodenames": ["b"], "failedNodes": {"a": "full"}}
    async with scheduling(extenders=(ExtenderConfiguration(url, filter_verb="filter", node_cache_capable=True),)):
        cluster.pod("p")
        await until(lambda: bool(cluster.bindings))
    assert cluster.bindings == [("default/p", "b")]
    assert sorted(requests[0][1]["NodeNames"]) == ["a", "b"]


async def test_reasons_of_extender_are_in_the_event(server, cluster, scheduling):
    url, responses, _ = server
    cluster.node("a")
    responses["filter"] = lambda body: {"nodes": {"items": []}, "failedNodes": {"a": "no licence"}}
    async with scheduling(extenders=(ExtenderConfiguration(url, filter_verb="filter"),)) as scheduler:
        cluster.pod("p")
        await until(lambda: bool(cluster.events))
        assert cluster.events[0][2].startswith("0/1 nodes are available: 1 no licence.")
        queue_name, queued = scheduler.queue.get("default/p")
        assert queue_name == "unschedulable"
        assert "Extender" in queued.unschedulable_plugins


async def test_extender_error_fails_the_attempt_unless_ignorable(server, cluster, scheduling):
    url, _, _ = server
    cluster.node("a")
    async with scheduling(extenders=(ExtenderConfiguration(url, filter_verb="filter"),)):
        cluster.pod("p")
        await until(lambda: bool(cluster.events))
        assert cluster.events[0][2] == f"failed filter with extender at URL {url}/filter, code 500"
    cluster.delete_pod("default/p")
    async with scheduling(extenders=(ExtenderConfiguration(url, filter_verb="filter", ignorable=True),)):
        cluster.pod("q")
        await until(lambda: bool(cluster.bindings))
    assert cluster.bindings == [("default/q", "a")]


async def test_extender_binds(server, cluster, scheduling):
    url, responses, requests = server
    cluster.node("a")

    def bind(body: Any) -> Any:
        cluster.change_pod(f"{body['PodNamespace']}/{body['PodName']}", nodeName=body["Node"])
        return {}

    responses["bind"] = bind
    async with scheduling(extenders=(ExtenderConfiguration(url, bind_verb="bind"),)):
        cluster.pod("p")
        await until(lambda: cluster.node_of("default/p") == "a")
        await until(lambda: bool(cluster.events))
    assert cluster.bindings == []
    assert requests == [
        ("bind", {"PodName": "p", "PodNamespace": "default", "PodUID": requests[0][1]["PodUID"], "Node": "a"})
    ]
    assert cluster.events[0][1] == "Scheduled"


def victims(body: Any) -> dict[str, list[str]]:
    """Return the names of the victims in an extender's request, by node."""
    victims_by_node = body["NodeNameToVictims"]
    return {
        node: [pod["metadata"]["name"] for pod in node_victims["Pods"]]
        for node, node_victims in victims_by_node.items()
    }


def two_full_nodes(cluster: Any) -> None:
    """Create a pod of priority 1 on "cheap" and of priority 2 on "dear"; preemption alone would choose "cheap"."""
    for number, name in enumerate(("cheap", "dear"), start=1):
        cluster.node(name, cpu="1")
        cluster.pod(f"on-{name}", cpu="1", nodeName=name, priority=number)


def uid_of(cluster: Any, key: str) -> str:
    uid: str = cluster.stored_pod(key)["metadata"]["uid"]
    return uid


@pytest.mark.parametrize("background", [True, False], ids=["async preemption", "sync preemption"])
async def test_extender_chooses_among_preemption_candidates(server, cluster, scheduling, background):
    url, responses, requests = server
    two_full_nodes(cluster)
    uid = uid_of(cluster, "default/on-dear")
    responses["preempt"] = lambda body: {
        "NodeNameToMetaVictims": {"dear": {"Pods": [{"UID": uid}], "NumPDBViolations": 0}}
    }
    metrics = PreemptionMetrics()
    async with scheduling(
        metrics=metrics,
        gates={"SchedulerAsyncPreemption": background},
        extenders=(ExtenderConfiguration(url, preempt_verb="preempt"),),
    ) as scheduler:
        cluster.pod("high", cpu="1", priority=10)
        await until(lambda: cluster.node_of("default/high") == "dear")
        assert scheduler.queue.get("default/high") is None
    assert cluster.node_of("default/on-dear") == ""
    assert cluster.node_of("default/on-cheap") == "cheap"
    ((_, body),) = requests
    assert body["Pod"]["metadata"]["name"] == "high"
    assert victims(body) == {"cheap": ["on-cheap"], "dear": ["on-dear"]}
    assert body["NodeNameToMetaVictims"] is None
    assert metrics.preemptions == [1]


async def test_next_extender_receives_remaining_candidates(server, cluster, scheduling):
    url, responses, requests = server
    two_full_nodes(cluster)
    uid = uid_of(cluster, "default/on-cheap")
    responses["first"] = responses["second"] = lambda body: {
        "nodeNameToMetaVictims": {"cheap": {"pods": [{"uid": uid}], "numPDBViolations": 3}}
    }
    metrics = PreemptionMetrics()
    extenders = (
        ExtenderConfiguration(url, preempt_verb="first"),
        ExtenderConfiguration(url, preempt_verb="second", node_cache_capable=True),
    )
    async with scheduling(metrics=metrics, extenders=extenders):
        cluster.pod("high", cpu="1", priority=10)
        await until(lambda: bool(metrics.preemptions))
    assert [verb for verb, _ in requests] == ["first", "second"]
    assert requests[1][1]["NodeNameToMetaVictims"] == {"cheap": {"Pods": [{"UID": uid}], "NumPDBViolations": 3}}
    assert requests[1][1]["NodeNameToVictims"] is None


@pytest.mark.parametrize(
    ("handle", "ignorable", "message"),
    [
        pytest.param({}, False, "preemption: no candidate node for preemption", id="no candidates"),
        pytest.param(
            {"NodeNameToMetaVictims": None}, False, "preemption: no candidate node for preemption", id="null candidates"
        ),
        pytest.param(
            None, False, "preemption: failed preempt with extender at URL {url}/preempt, code 500", id="server error"
        ),
        pytest.param(
            {"nodeNameToMetaVictims": {"dear": {"pods": []}}},
            False,
            'preemption: expected at least one victim pod on node "dear"',
            id="no victims",
        ),
        pytest.param(
            {"nodeNameToMetaVictims": {"dear": {"pods": []}}},
            True,
            "preemption: no candidate node for preemption",
            id="no victims, ignorable extender",
        ),
        pytest.param(
            {"nodeNameToMetaVictims": {"dear": {"pods": [{"uid": "x"}]}}},
            False,
            "preemption: extender: {url} claims to preempt pod (UID: x) on node: dear, "
            "but the pod is not found on that node",
            id="unknown victim",
        ),
        pytest.param(
            {"nodeNameToMetaVictims": {"mars": {"pods": [{"uid": "x"}]}}},
            False,
            'preemption: nodeinfo not found for node name "mars"',
            id="unknown node",
        ),
        pytest.param(
            [],
            False,
            "preemption: an extender returned list instead of an object",
            id="not an object",
        ),
    ],
)
async def test_extender_prevents_preemption(server, cluster, scheduling, handle, ignorable, message):
    url, responses, _ = server
    two_full_nodes(cluster)
    if handle is not None:
        responses["preempt"] = lambda body: handle
    metrics = PreemptionMetrics()
    config = ExtenderConfiguration(url, preempt_verb="preempt", ignorable=ignorable)
    async with scheduling(metrics=metrics, extenders=(config,)):
        cluster.pod("high", cpu="1", priority=10)
        await until(lambda: bool(cluster.events))
    assert metrics.preemptions == []
    assert cluster.events[0][2].endswith(message.format(url=url))


async def test_ignorable_extender_error_does_not_stop_preemption(server, cluster, scheduling):
    url, _, _ = server
    two_full_nodes(cluster)
    metrics = PreemptionMetrics()
    config = ExtenderConfiguration(url, preempt_verb="preempt", ignorable=True)
    async with scheduling(metrics=metrics, extenders=(config,)):
        cluster.pod("high", cpu="1", priority=10)
        await until(lambda: cluster.node_of("default/high") == "cheap")
    assert metrics.preemptions == [1]


def pod_with(resource: str) -> Pod:
    container = {"name": "c", "resources": {"limits": {resource: "1"}}}
    return convert(Pod, {"metadata": {"name": "p"}, "spec": {"containers": [container]}})


def test_extender_is_called_for_managed_resources_only():
    extender = HTTPExtender(
        ExtenderConfiguration("http://x", managed_resources=(ManagedResource("example.com/gpu"),)), FullObjects(None)
    )
    assert extender.is_interested(pod_with("example.com/gpu"))
    assert not extender.is_interested(pod_with("cpu"))
    assert HTTPExtender(ExtenderConfiguration("http://x"), FullObjects(None)).is_interested(pod_with("cpu"))


async def test_connection_refused_is_an_extender_error(cluster):
    pod = cluster.pod("p")
    extender = HTTPExtender(
        ExtenderConfiguration("http://127.0.0.1:9", filter_verb="filter"), FullObjects(cluster.server.client)
    )
    with pytest.raises(ExtenderError) as error:
        await extender.filter(pod, [])
    refused = "dial tcp 127.0.0.1:9: connect: connection refused"
    assert str(error.value) == f'Post "http://127.0.0.1:9/filter": {refused}'
    await extender.close()


async def test_timeout_is_an_extender_error(server, cluster):
    url, responses, _ = server
    responses["filter"] = lambda body: asyncio.sleep(0.2)
    config = ExtenderConfiguration(url, filter_verb="filter", http_timeout_seconds=0.05)
    extender = HTTPExtender(config, FullObjects(cluster.server.client))
    with pytest.raises(ExtenderError) as error:
        await extender.filter(cluster.pod("p"), [])
    assert str(error.value) == (
        f'Post "{url}/filter": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
    )
    await extender.close()


async def test_slow_binding_does_not_delay_other_requests(server, cluster):
    url, responses, _ = server
    bound = asyncio.Event()

    async def bind(body: Any) -> Any:
        await bound.wait()
        return {}

    responses["bind"] = bind
    responses["prioritize"] = lambda body: [{"host": "a", "score": 3}]
    config = ExtenderConfiguration(url, bind_verb="bind", prioritize_verb="prioritize", node_cache_capable=True)
    extender = HTTPExtender(config, FullObjects(cluster.server.client))
    pods = [cluster.pod(name) for name in ("p", "q")]
    try:
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            tasks.create_task(extender.bind(pods[0], "a"))
            tasks.create_task(extender.bind(pods[1], "a"))
            await asyncio.sleep(0.01)
            assert await extender.prioritize(pods[1], []) == {"a": 3}
            bound.set()
    finally:
        await extender.close()


async def test_unknown_filtered_node_is_an_extender_error(server, cluster):
    url, responses, _ = server
    responses["filter"] = lambda body: {"nodenames": ["mars"]}
    extender = HTTPExtender(
        ExtenderConfiguration(url, filter_verb="filter", node_cache_capable=True), FullObjects(cluster.server.client)
    )
    with pytest.raises(ExtenderError) as error:
        await extender.filter(cluster.pod("p"), [NodeInfo.of(cluster.node("a"))])
    assert str(error.value) == (
        f'extender "{url}" claims a filtered node "mars" which is not found in the input node list'
    )
    await extender.close()


async def test_requests_contain_undeclared_fields(server, cluster):
    url, responses, requests = server
    responses["filter"] = lambda body: {"nodes": body["Nodes"]}
    extender = HTTPExtender(ExtenderConfiguration(url, filter_verb="filter"), FullObjects(cluster.server.client))
    fields = {"managedFields": [{"manager": "kubectl"}]}
    pod = cluster.pod("p", unknownToUs="p", metadata=fields)
    for name in "ab":
        cluster.put(NODES, {"metadata": {"name": name, **fields}, "spec": {"unknownToUs": name}})
    nodes = [NodeInfo.of(node) for node in cluster.nodes()]
    for _ in range(2):
        result = await extender.filter(pod, nodes)
        assert list(result.feasible) == ["a", "b"]
    body = requests[0][1]
    assert body["Pod"]["spec"]["unknownToUs"] == "p"
    assert [item["spec"]["unknownToUs"] for item in body["Nodes"]["items"]] == ["a", "b"]
    for sent in (body["Pod"], *body["Nodes"]["items"]):
        assert "kind" not in sent
        assert "managedFields" not in sent["metadata"]
    assert requests[1] == requests[0]
    assert sorted(cluster.fetched) == ["a", "b", "p"], "unchanged objects are fetched once"
    changed = NodeInfo.of(cluster.node("a", unschedulable=True))
    await extender.filter(pod, [changed, nodes[1]])
    assert cluster.fetched[3:] == ["a"]
    await extender.close()


async def test_many_nodes_are_fetched_by_one_list(server, cluster):
    url, responses, requests = server
    responses["prioritize"] = lambda body: []
    extender = HTTPExtender(
        ExtenderConfiguration(url, prioritize_verb="prioritize"), FullObjects(cluster.server.client)
    )
    nodes = [NodeInfo.of(cluster.node(f"n{number}")) for number in range(40)]
    pod = cluster.pod("p")
    await extender.prioritize(pod, nodes)
    await extender.prioritize(pod, nodes)
    assert len(requests[0][1]["Nodes"]["items"]) == 40
    assert cluster.fetched == ["p", "nodes"]
    await extender.close()


async def test_deleted_pod_is_an_extender_error(server, cluster):
    url, _, _ = server
    pod = cluster.pod("p")
    cluster.delete_pod("default/p")
    extender = HTTPExtender(ExtenderConfiguration(url, filter_verb="filter"), FullObjects(cluster.server.client))
    with pytest.raises(ExtenderError, match=r'cannot read the objects for extender http.*: pods "p" not found'):
        await extender.filter(pod, [])
    await extender.close()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create ca.pem, and certificates and keys of "extender" and "client" signed by it."""
    folder = tmp_path_factory.mktemp("tls")
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ca")])
    not_before = datetime(2020, 1, 1, tzinfo=UTC)

    def certificate(name: str, key: ec.EllipticCurvePrivateKey, *, is_authority: bool) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
            .issuer_name(authority)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(not_before)
            .not_valid_after(not_before.replace(year=2100))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        return builder.sign(authority_key, hashes.SHA256()).public_bytes(Encoding.PEM)

    (folder / "ca.pem").write_bytes(certificate("ca", authority_key, is_authority=True))
    for name in ("extender", "client"):
        key = ec.generate_private_key(ec.SECP256R1())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / f"{name}.crt").write_bytes(certificate(name, key, is_authority=False))
        (folder / f"{name}.key").write_bytes(private)
    return folder


@pytest.fixture
async def tls_server(certificates: Path) -> AsyncIterator[str]:
    """Start an extender that requires a client certificate and accepts all nodes. Yields its URL."""

    async def handle(request: web.Request) -> web.Response:
        return web.json_response({"nodes": (await request.json())["Nodes"]})

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "extender.crt", certificates / "extender.key")
    context.load_verify_locations(certificates / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    app = web.Application()
    app.router.add_post("/filter", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.mark.parametrize("by", ["file", "data"])
async def test_mutual_tls_with_server_name(tls_server, certificates, cluster, by):
    names = {"ca": "ca.pem", "cert": "client.crt", "key": "client.key"}
    if by == "file":
        tls_options: dict[str, Any] = {f"{name}_file": str(certificates / file) for name, file in names.items()}
    else:
        tls_options = {f"{name}_data": (certificates / file).read_bytes() for name, file in names.items()}
    tls = ExtenderTLS(server_name="extender", **tls_options)
    config = ExtenderConfiguration(tls_server, filter_verb="filter", enable_https=True, tls_config=tls)
    extender = HTTPExtender(config, FullObjects(cluster.server.client))
    result = await extender.filter(cluster.pod("p"), [NodeInfo.of(cluster.node("a"))])
    assert list(result.feasible) == ["a"]
    await extender.close()


async def test_tls_server_name_mismatch_is_an_error(tls_server, certificates, cluster):
    files = {f"{name}_file": str(certificates / f"client.{end}") for name, end in (("cert", "crt"), ("key", "key"))}
    tls = ExtenderTLS(ca_file=str(certificates / "ca.pem"), server_name="other", **files)
    config = ExtenderConfiguration(tls_server, filter_verb="filter", enable_https=True, tls_config=tls)
    extender = HTTPExtender(config, FullObjects(cluster.server.client))
    with pytest.raises(ExtenderError, match="x509: certificate is valid for extender, not other"):
        await extender.filter(cluster.pod("p"), [])
    await extender.close()


def test_unreadable_ca_file_is_a_user_error():
    config = ExtenderConfiguration("https://x", enable_https=True, tls_config=ExtenderTLS(ca_file="/nowhere/ca.pem"))
    with pytest.raises(UserError, match="the TLS configuration of extender https://x cannot be used: "):
        HTTPExtender(config, FullObjects(None))


@pytest.mark.parametrize(
    ("verb", "response", "message"),
    [
        pytest.param("filter", {"error": "no"}, "no", id="filter"),
        pytest.param("filter", {"Error": "no"}, "no", id="filter, as Go writes it"),
        pytest.param("bind", {"error": "taken"}, "taken", id="bind"),
        pytest.param("prioritize", {"host": "a"}, 'extender "{url}" returned no list for prioritize', id="no list"),
    ],
)
async def test_error_in_a_response_is_an_extender_error(server, cluster, verb, response, message):
    url, responses, _ = server
    responses[verb] = lambda body: response
    verbs = {f"{name}_verb": name for name in ("filter", "prioritize", "bind")}
    extender = HTTPExtender(ExtenderConfiguration(url, **verbs), FullObjects(cluster.server.client))
    pod = cluster.pod("p")
    with pytest.raises(ExtenderError) as error:
        await {
            "filter": lambda: extender.filter(pod, []),
            "prioritize": lambda: extender.prioritize(pod, []),
            "bind": lambda: extender.bind(pod, "a"),
        }[verb]()
    assert str(error.value) == message.format(url=url)
    await extender.close()


async def test_response_that_is_no_json_is_an_extender_error(cluster):
    async def respond(request: web.Request) -> web.Response:
        return web.Response(text="nothing")

    app = web.Application()
    app.router.add_post("/filter", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    extender = HTTPExtender(ExtenderConfiguration(url, filter_verb="filter"), FullObjects(cluster.server.client))
    with pytest.raises(ExtenderError, match=f'Post "{url}/filter": JSON is malformed'):
        await extender.filter(cluster.pod("p"), [])
    await extender.close()
    await runner.cleanup()
