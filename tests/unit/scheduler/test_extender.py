"""Extenders over HTTP, against a small server: filter, prioritize, bind, failures, and who is asked at all."""

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

from kubeloop.kube.errors import UserError
from kubeloop.kube.objects.api_types import Pod, convert
from kubeloop.kube.objects.resources import PODS
from kubeloop.scheduler.api.extender import ExtenderError
from kubeloop.scheduler.cache.node_info import NodeInfo
from kubeloop.scheduler.config.types import ExtenderConfiguration, ExtenderTLS, ManagedResource
from kubeloop.scheduler.extender import HTTPExtender
from kubeloop.scheduler.full_objects import FullObjects

Answers = dict[str, Callable[[Any], Any]]


@pytest.fixture
async def server() -> AsyncIterator[tuple[str, Answers, list[tuple[str, Any]]]]:
    """(URL prefix, answers by verb, what was asked)."""
    answers: Answers = {}
    asked: list[tuple[str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        verb, body = request.match_info["verb"], await request.json()
        asked.append((verb, body))
        if verb not in answers:
            return web.Response(status=500)
        answered = answers[verb](body)
        return web.json_response(await answered if inspect.isawaitable(answered) else answered)

    app = web.Application()
    app.router.add_post("/scheduler/{verb}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield f"http://127.0.0.1:{port}/scheduler", answers, asked
    await runner.cleanup()


class Told:
    """Metrics that remember how many victims each preemption had."""

    def __init__(self) -> None:
        self.preemptions: list[int] = []

    def preemption(self, victims: int) -> None:
        self.preemptions.append(victims)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def test_an_extender_confines_and_ranks_nodes(server, cluster, scheduling):
    url, answers, asked = server
    for name in ("a", "b", "c"):
        cluster.node(name)
    answers["filter"] = lambda body: {
        "nodes": {"items": [item for item in body["Nodes"]["items"] if item["metadata"]["name"] != "c"]},
        "failedNodes": {"c": "not today"},
    }
    answers["prioritize"] = lambda body: [{"host": "a", "score": 0}, {"host": "b", "score": 10}]
    config = ExtenderConfiguration(url, filter_verb="filter", prioritize_verb="prioritize", weight=100)
    async with scheduling(extenders=(config,)):
        cluster.pod("p")
        await until(lambda: bool(cluster.bindings))
    assert cluster.bindings == [("default/p", "b")]
    assert [verb for verb, _ in asked] == ["filter", "prioritize"]
    assert asked[0][1]["Pod"]["metadata"]["name"] == "p"


async def test_a_node_cache_capable_extender_is_sent_names(server, cluster, scheduling):
    url, answers, asked = server
    cluster.node("a")
    cluster.node("b")
    answers["filter"] = lambda body: {"nodenames": ["b"], "failedNodes": {"a": "full"}}
    async with scheduling(extenders=(ExtenderConfiguration(url, filter_verb="filter", node_cache_capable=True),)):
        cluster.pod("p")
        await until(lambda: bool(cluster.bindings))
    assert cluster.bindings == [("default/p", "b")]
    assert sorted(asked[0][1]["NodeNames"]) == ["a", "b"]


async def test_its_reasons_stand_in_the_event(server, cluster, scheduling):
    url, answers, _ = server
    cluster.node("a")
    answers["filter"] = lambda body: {"nodes": {"items": []}, "failedNodes": {"a": "no licence"}}
    async with scheduling(extenders=(ExtenderConfiguration(url, filter_verb="filter"),)) as scheduler:
        cluster.pod("p")
        await until(lambda: bool(cluster.events))
        assert cluster.events[0][2].startswith("0/1 nodes are available: 1 no licence.")
        where, queued = scheduler.queue.get("default/p")
        assert where == "unschedulable"
        assert "Extender" in queued.unschedulable_plugins


async def test_an_extender_that_fails_fails_the_attempt_unless_it_is_ignorable(server, cluster, scheduling):
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


async def test_an_extender_may_bind(server, cluster, scheduling):
    url, answers, asked = server
    cluster.node("a")

    def bind(body: Any) -> Any:
        cluster.change_pod(f"{body['PodNamespace']}/{body['PodName']}", node_name=body["Node"])
        return {}

    answers["bind"] = bind
    async with scheduling(extenders=(ExtenderConfiguration(url, bind_verb="bind"),)):
        cluster.pod("p")
        await until(lambda: cluster.node_of("default/p") == "a")
        await until(lambda: bool(cluster.events))
    assert cluster.bindings == []
    assert asked == [
        ("bind", {"PodName": "p", "PodNamespace": "default", "PodUID": asked[0][1]["PodUID"], "Node": "a"})
    ]
    assert cluster.events[0][1] == "Scheduled"


def victims(body: Any) -> dict[str, list[str]]:
    """Node -> names of the victims that an extender is shown."""
    shown = body["NodeNameToVictims"]
    return {node: [pod["metadata"]["name"] for pod in each["Pods"]] for node, each in shown.items()}


def two_full_nodes(cluster: Any) -> None:
    """A pod of priority 1 on "cheap", of priority 2 on "dear"; without extenders the first would have to go."""
    for number, name in enumerate(("cheap", "dear"), start=1):
        cluster.node(name, cpu="1")
        cluster.pod(f"on-{name}", cpu="1", nodeName=name, priority=number)


def uid_of(cluster: Any, key: str) -> str:
    return cluster.informer(PODS).store.get(key).metadata.uid


async def test_an_extender_chooses_among_the_nodes_that_preemption_would_free(server, cluster, scheduling):
    url, answers, asked = server
    two_full_nodes(cluster)
    uid = uid_of(cluster, "default/on-dear")
    answers["preempt"] = lambda body: {
        "NodeNameToMetaVictims": {"dear": {"Pods": [{"UID": uid}], "NumPDBViolations": 0}}
    }
    told = Told()
    async with scheduling(metrics=told, extenders=(ExtenderConfiguration(url, preempt_verb="preempt"),)) as scheduler:
        cluster.pod("high", cpu="1", priority=10)
        await until(lambda: cluster.node_of("default/high") == "dear")
        assert scheduler.queue.get("default/high") is None
    assert cluster.node_of("default/on-dear") == ""
    assert cluster.node_of("default/on-cheap") == "cheap"
    ((_, body),) = asked
    assert body["Pod"]["metadata"]["name"] == "high"
    assert victims(body) == {"cheap": ["on-cheap"], "dear": ["on-dear"]}
    assert body["NodeNameToMetaVictims"] is None
    assert told.preemptions == [1]


async def test_the_next_extender_sees_what_the_first_has_left(server, cluster, scheduling):
    url, answers, asked = server
    two_full_nodes(cluster)
    uid = uid_of(cluster, "default/on-cheap")
    answers["first"] = answers["second"] = lambda body: {
        "nodeNameToMetaVictims": {"cheap": {"pods": [{"uid": uid}], "numPDBViolations": 3}}
    }
    told = Told()
    extenders = (
        ExtenderConfiguration(url, preempt_verb="first"),
        ExtenderConfiguration(url, preempt_verb="second", node_cache_capable=True),
    )
    async with scheduling(metrics=told, extenders=extenders):
        cluster.pod("high", cpu="1", priority=10)
        await until(lambda: bool(told.preemptions))
    assert [verb for verb, _ in asked] == ["first", "second"]
    assert asked[1][1]["NodeNameToMetaVictims"] == {"cheap": {"Pods": [{"UID": uid}], "NumPDBViolations": 3}}
    assert asked[1][1]["NodeNameToVictims"] is None


@pytest.mark.parametrize(
    ("answer", "ignorable", "message"),
    [
        pytest.param({}, False, "preemption: no candidate node for preemption", id="no node is left"),
        pytest.param(
            {"NodeNameToMetaVictims": None}, False, "preemption: no candidate node for preemption", id="a null of Go"
        ),
        pytest.param(
            None, False, "preemption: failed preempt with extender at URL {url}/preempt, code 500", id="failure"
        ),
        pytest.param(
            {"nodeNameToMetaVictims": {"dear": {"pods": []}}},
            False,
            'preemption: expected at least one victim pod on node "dear"',
            id="nobody has to go",
        ),
        pytest.param(
            {"nodeNameToMetaVictims": {"dear": {"pods": []}}},
            True,
            "preemption: no candidate node for preemption",
            id="nobody has to go, says one that may be ignored",
        ),
        pytest.param(
            {"nodeNameToMetaVictims": {"dear": {"pods": [{"uid": "x"}]}}},
            False,
            "preemption: extender: {url} claims to preempt pod (UID: x) on node: dear, "
            "but the pod is not found on that node",
            id="an unknown victim",
        ),
        pytest.param(
            {"nodeNameToMetaVictims": {"mars": {"pods": [{"uid": "x"}]}}},
            False,
            'preemption: nodeinfo not found for node name "mars"',
            id="an unknown node",
        ),
        pytest.param(
            [],
            False,
            "preemption: an extender returned list instead of an object",
            id="something else altogether",
        ),
    ],
)
async def test_without_the_consent_of_an_extender_nobody_is_preempted(
    server, cluster, scheduling, answer, ignorable, message
):
    url, answers, _ = server
    two_full_nodes(cluster)
    if answer is not None:
        answers["preempt"] = lambda body: answer
    told = Told()
    config = ExtenderConfiguration(url, preempt_verb="preempt", ignorable=ignorable)
    async with scheduling(metrics=told, extenders=(config,)):
        cluster.pod("high", cpu="1", priority=10)
        await until(lambda: bool(cluster.events))
    assert told.preemptions == [0]
    assert cluster.events[0][2].endswith(message.format(url=url))


async def test_an_ignorable_extender_that_fails_has_no_say_in_preemption(server, cluster, scheduling):
    url, _, _ = server
    two_full_nodes(cluster)
    told = Told()
    config = ExtenderConfiguration(url, preempt_verb="preempt", ignorable=True)
    async with scheduling(metrics=told, extenders=(config,)):
        cluster.pod("high", cpu="1", priority=10)
        await until(lambda: cluster.node_of("default/high") == "cheap")
    assert told.preemptions == [1]


def pod_with(resource: str) -> Pod:
    container = {"name": "c", "resources": {"limits": {resource: "1"}}}
    return convert(Pod, {"metadata": {"name": "p"}, "spec": {"containers": [container]}})


def test_it_is_asked_only_about_resources_it_manages():
    extender = HTTPExtender(
        ExtenderConfiguration("http://x", managed_resources=(ManagedResource("example.com/gpu"),)), FullObjects(None)
    )
    assert extender.is_interested(pod_with("example.com/gpu"))
    assert not extender.is_interested(pod_with("cpu"))
    assert HTTPExtender(ExtenderConfiguration("http://x"), FullObjects(None)).is_interested(pod_with("cpu"))


async def test_an_extender_that_is_not_there_is_an_error(cluster):
    pod = cluster.pod("p")
    extender = HTTPExtender(ExtenderConfiguration("http://127.0.0.1:9", filter_verb="filter"), FullObjects(cluster))
    with pytest.raises(ExtenderError) as error:
        await extender.filter(pod, [])
    refused = "dial tcp 127.0.0.1:9: connect: connection refused"
    assert str(error.value) == f'Post "http://127.0.0.1:9/filter": {refused}'
    await extender.close()


async def test_an_extender_that_takes_too_long_is_an_error(server, cluster):
    url, answers, _ = server
    answers["filter"] = lambda body: asyncio.sleep(0.2)
    config = ExtenderConfiguration(url, filter_verb="filter", http_timeout_seconds=0.05)
    extender = HTTPExtender(config, FullObjects(cluster))
    with pytest.raises(ExtenderError) as error:
        await extender.filter(cluster.pod("p"), [])
    assert str(error.value) == (
        f'Post "{url}/filter": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
    )
    await extender.close()


async def test_a_node_that_was_not_offered_is_an_error(server, cluster):
    url, answers, _ = server
    answers["filter"] = lambda body: {"nodenames": ["mars"]}
    extender = HTTPExtender(
        ExtenderConfiguration(url, filter_verb="filter", node_cache_capable=True), FullObjects(cluster)
    )
    with pytest.raises(ExtenderError) as error:
        await extender.filter(cluster.pod("p"), [NodeInfo.of(cluster.node("a"))])
    assert str(error.value) == (
        f'extender "{url}" claims a filtered node "mars" which is not found in the input node list'
    )
    await extender.close()


async def test_pods_and_nodes_are_sent_with_fields_that_no_struct_knows(server, cluster):
    url, answers, asked = server
    answers["filter"] = lambda body: {"nodes": body["Nodes"]}
    extender = HTTPExtender(ExtenderConfiguration(url, filter_verb="filter"), FullObjects(cluster))
    pod, nodes = cluster.pod("p"), [NodeInfo.of(cluster.node(name)) for name in "ab"]
    for _ in range(2):
        verdict = await extender.filter(pod, nodes)
        assert list(verdict.feasible) == ["a", "b"]
    body = asked[0][1]
    assert body["Pod"]["spec"]["unknownToUs"] == "p"
    assert [item["spec"]["unknownToUs"] for item in body["Nodes"]["items"]] == ["a", "b"]
    for sent in (body["Pod"], *body["Nodes"]["items"]):
        assert "kind" not in sent
        assert "managedFields" not in sent["metadata"]
    assert asked[1] == asked[0]
    assert sorted(cluster.fetched) == ["a", "b", "p"], "once each, while they stay as they are"
    changed = NodeInfo.of(cluster.node("a", unschedulable=True))
    await extender.filter(pod, [changed, nodes[1]])
    assert cluster.fetched[3:] == ["a"]
    await extender.close()


async def test_many_nodes_are_listed_at_once(server, cluster):
    url, answers, asked = server
    answers["prioritize"] = lambda body: []
    extender = HTTPExtender(ExtenderConfiguration(url, prioritize_verb="prioritize"), FullObjects(cluster))
    nodes = [NodeInfo.of(cluster.node(f"n{number}")) for number in range(40)]
    pod = cluster.pod("p")
    await extender.prioritize(pod, nodes)
    await extender.prioritize(pod, nodes)
    assert len(asked[0][1]["Nodes"]["items"]) == 40
    assert cluster.fetched == ["p", "all nodes"]
    await extender.close()


async def test_a_pod_that_is_gone_ends_the_attempt_with_an_error(server, cluster):
    url, _, _ = server
    pod = cluster.pod("p")
    cluster.delete_pod("default/p")
    extender = HTTPExtender(ExtenderConfiguration(url, filter_verb="filter"), FullObjects(cluster))
    with pytest.raises(ExtenderError, match=r'cannot read the objects for extender http.*: pods "p" not found'):
        await extender.filter(pod, [])
    await extender.close()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.pem, and server.pem and client.pem (certificate and key) which it has signed; the server is "extender"."""
    folder = tmp_path_factory.mktemp("tls")
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ca")])
    day = datetime(2020, 1, 1, tzinfo=UTC)

    def certificate(name: str, key: ec.EllipticCurvePrivateKey, *, is_authority: bool) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
            .issuer_name(authority)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(day)
            .not_valid_after(day.replace(year=2100))
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
    """URL of an extender that asks for a client's certificate and accepts all nodes."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"nodes": (await request.json())["Nodes"]})

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "extender.crt", certificates / "extender.key")
    context.load_verify_locations(certificates / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    app = web.Application()
    app.router.add_post("/filter", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.mark.parametrize("by", ["file", "data"])
async def test_tls_with_certificates_of_both_sides_and_a_server_name(tls_server, certificates, cluster, by):
    names = {"ca": "ca.pem", "cert": "client.crt", "key": "client.key"}
    if by == "file":
        given: dict[str, Any] = {f"{name}_file": str(certificates / file) for name, file in names.items()}
    else:
        given = {f"{name}_data": (certificates / file).read_bytes() for name, file in names.items()}
    tls = ExtenderTLS(server_name="extender", **given)
    config = ExtenderConfiguration(tls_server, filter_verb="filter", enable_https=True, tls=tls)
    extender = HTTPExtender(config, FullObjects(cluster))
    verdict = await extender.filter(cluster.pod("p"), [NodeInfo.of(cluster.node("a"))])
    assert list(verdict.feasible) == ["a"]
    await extender.close()


async def test_a_server_with_another_name_is_refused(tls_server, certificates, cluster):
    files = {f"{name}_file": str(certificates / f"client.{end}") for name, end in (("cert", "crt"), ("key", "key"))}
    tls = ExtenderTLS(ca_file=str(certificates / "ca.pem"), server_name="other", **files)
    config = ExtenderConfiguration(tls_server, filter_verb="filter", enable_https=True, tls=tls)
    extender = HTTPExtender(config, FullObjects(cluster))
    with pytest.raises(ExtenderError, match="certificate verify failed"):
        await extender.filter(cluster.pod("p"), [])
    await extender.close()


def test_a_certificate_that_cannot_be_read_is_the_users_error():
    config = ExtenderConfiguration("https://x", enable_https=True, tls=ExtenderTLS(ca_file="/nowhere/ca.pem"))
    with pytest.raises(UserError, match="the TLS configuration of extender https://x cannot be used: "):
        HTTPExtender(config, FullObjects(None))
