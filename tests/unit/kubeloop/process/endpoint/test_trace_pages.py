"""Trace pages of the endpoint: access, files, and errors."""

from __future__ import annotations

import json
import re

import aiohttp
import pytest
from yarl import URL

from kubeloop.process.endpoint.paths import NAMES_PATH
from kubeloop.process.endpoint.trace_pages import TracePages
from kubeloop.tracing.observation.clock_skew import API_SERVER
from kubeloop.tracing.views.browser_page import SCRIPTS
from kubeloop.tracing.views.phases import KEYS
from support.processes.cli_processes import ROOT
from support.traces.traced_pods import TracedPods


async def test_trace_pages_reject_foreign_host_headers():
    pods = TracedPods()
    pods.pending("web-5f-1")

    hosts = {"127.0.0.1:1": 200, "localhost": 200, "[::1]:80": 200}
    hosts |= dict.fromkeys(["evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example"], 403)
    async with pods.running() as url, aiohttp.ClientSession() as session:
        for path in ("/traces", "/traces/app.js", "/debug/traces", "/debug/traces/lines"):
            for host, expected in hosts.items():
                async with session.get(url + path, headers={"Host": host}) as response:
                    assert response.status == expected, (path, host)
        async with session.get(f"{url}/metrics", headers={"Host": "evil.example"}) as response:
            assert response.status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/traces/../../../../etc/passwd", "/traces/%2e%2e/%2e%2e/etc/passwd", "/traces/..%2f..%2fpod_lines.py",
        "/traces//etc/passwd", "/traces/app.js%00.css", "/traces/", "/traces/index.html", "/traces/\\..\\app.js",
    ],
)  # fmt: skip
async def test_pages_are_names_and_no_paths_of_files(path):
    async with TracedPods().running() as url, aiohttp.request("GET", URL(url + path, encoded=True)) as response:
        assert response.status == 404
        assert (await response.text()).startswith("no such page")


@pytest.mark.parametrize(
    ("query", "problem", "hint"),
    [
        ("pod=nope", "no pod nope in any namespace", "kubectl get pods"),
        ("pod=web-5f", "no pod web-5f in any namespace", "did you mean web-5f-1, web-5f-2?"),
        ("pod=web-5f-1&namespace=other", "no pod web-5f-1 in namespace other", "it exists in namespace shop"),
        ("pod=old", "pod shop/old is not traced", "OTEL_TRACES_SAMPLER"),
        ("owner=deployment/webb", "no deployment webb in any namespace", "did you mean web?"),
        ("key=nope", "no trace of a pod with key nope", "kubectl"),
        ("trace=nope", "no trace nope", "kubectl"),
        ("namespace=other", "no trace of a pod in namespace other", "kubectl"),
    ],
)
async def test_missing_traces_have_error_and_hint(query, problem, hint):
    pods = TracedPods()
    pods.pending("web-5f-1")
    pods.pending("web-5f-2")
    pods.untraced("old")
    async with pods.running() as url, aiohttp.request("GET", f"{url}/debug/traces?{query}") as response:
        assert response.status == 404
        body = await response.json()
    assert problem in body["error"]
    assert hint in body["hint"]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("kind=pod", ["old", "web-5f-1", "web-5f-2"]),
        ("kind=pod&prefix=web", ["web-5f-1", "web-5f-2"]),
        ("kind=pod&namespace=other", []),
        ("kind=deployment&prefix=w&namespace=shop", ["web"]),
        ("kind=deployments", ["web"]),
        ("kind=statefulset", []),
        ("kind=namespace&prefix=s", ["shop"]),
        ("kind=namespace&prefix=x", []),
    ],
)
async def test_names_page_returns_names_with_the_prefix(query: str, names: list[str]):
    pods = TracedPods()
    pods.pending("web-5f-1")
    pods.pending("web-5f-2")
    pods.untraced("old")
    async with pods.running() as url, aiohttp.request("GET", f"{url}{NAMES_PATH}?{query}") as response:
        assert await response.json() == names


async def test_error_of_an_unsampled_pod_states_that():
    pods = TracedPods()
    pods.traceparents["web-5f-1"] = f"00-{'1' * 32}-{'2' * 16}-00"
    pods.untraced("web-5f-1")
    async with pods.running() as url, aiohttp.request("GET", f"{url}/debug/traces?pod=web-5f-1") as response:
        assert "it was not sampled" in (await response.json())["error"]


async def test_stream_has_each_trace_once_with_its_causes():
    pods = TracedPods()
    cause = pods.tracing.reconciles.reconcile("deployment", "shop/web", "added")
    cause.finish(True)
    reconcile = pods.tracing.reconciles.reconcile("replicaset", "shop/web-5f", "replicas")
    reconcile.link(cause.traceparent)
    pods.creator = reconcile.traceparent
    for number in range(120):
        pods.pending(f"web-5f-{number}")
    reconcile.finish(True)
    async with pods.running() as url, aiohttp.ClientSession() as session:
        for query, count in {
            "": 122,
            "?owner=deployment/web": 122,
            "?owner=replicaset/web-5f": 122,
            "?pod=web-5f-7": 3,
            "?namespace=shop": 122,
        }.items():
            async with session.get(f"{url}/debug/traces/stream{query}") as response:
                assert response.content_type == "application/x-ndjson"
                lines = (await response.text()).splitlines()
            assert len(lines) == len(set(lines)) == count
            assert "reconcile replicaset" in lines[-2]
            assert "reconcile deployment" in lines[-1]
        async with session.get(f"{url}/debug/traces/stream?namespace=other") as response:
            assert response.status == 404


async def test_stream_of_a_pod_group_has_its_trace():
    pods = TracedPods()
    pods.pending("web-5f-1")
    pods.start_group("train", 2)
    for number in (2, 3):
        pods.pending(f"web-5f-{number}")
    (group,) = pods.tracing.groups.open_records()
    async with pods.running() as url, aiohttp.ClientSession() as session:
        async with session.get(f"{url}/debug/traces/stream?owner=podgroup/train") as response:
            documents = [json.loads(line) for line in (await response.text()).splitlines()]
        assert [document["spans"][0]["name"] for document in documents] == ["pod", "pod", "pod group"]
        for trace, name in ((group.context.trace_id, "pod group"), ("nope", None)):
            async with session.get(f"{url}/debug/traces/linked?trace={trace}") as response:
                document = await response.json()
            assert (document and document["spans"][0]["name"]) == name


async def test_lines_response_is_bounded():
    pods = TracedPods()
    for number in range(700):
        pods.pending(f"web-5f-{number}")
    async with pods.running() as url, aiohttp.ClientSession() as session:
        for limit, count in {"": 500, "1000000": 500, "3": 3, "0": 1, "-1": 500, "x": 500}.items():
            async with session.get(f"{url}/debug/traces/lines", params={"limit": limit}) as response:
                body = await response.json()
            assert len(body["lines"]) == count
            assert body["more"]


async def test_lines_of_an_owner_are_selected():
    pods = TracedPods()
    pods.pending("web-5f-1")
    pods.observed("db-0")
    pods.observed("other-0", owner="other")
    pods.start_group("train", 1)
    pods.pending("web-5f-2")
    pages = TracePages(pods.tracing, pods.pods)
    for owner, names in {
        "statefulset/db": ["db-0"],
        "statefulsets/other": ["other-0"],
        "deployment/web": ["web-5f-1", "web-5f-2"],
        "replicaset/web-5f": ["web-5f-1", "web-5f-2"],
        "podgroup/train": ["web-5f-2"],
    }.items():
        assert [line.name for line in (await pages.lines({"owner": owner})).lines] == names
    (line,) = (await pages.lines({"owner": "statefulset/db"})).lines
    assert (line.stage, line.owner, line.namespace) == ("ready", "statefulset/db", "data")


async def test_certain_clock_skew_is_part_of_responses():
    pods = TracedPods()
    pods.observed("db-0")
    now_ns = pods.clock.time_ns()
    pods.clock_skew.timestamp("node-1", now_ns + 5_000_000_000, now_ns)
    pods.clock_skew.timestamp("node-2", now_ns + 9_000_000_000, now_ns)
    pods.clock_skew.timestamp(API_SERVER, now_ns - 1_000_000_000, now_ns)
    pages = TracePages(pods.tracing, pods.pods, clock_skew=pods.clock_skew)
    node_1 = {"lowestMs": 5000, "highestMs": None}
    assert (await pages.trace({"pod": "db-0"}))["clockSkew"] == {"node-1": node_1}  # of the clocks of this pod
    assert (await pages.lines({})).clock_skew == {"node-1": node_1, "node-2": {"lowestMs": 9000, "highestMs": None}}


def test_scripts_list_all_phases_and_files_are_served():
    assets = ROOT / "tracing" / "views" / "assets"
    text = (assets / "format.js").read_text()
    phases = text[text.index("PHASES = [") : text.index("];", text.index("PHASES = ["))]
    assert tuple(re.findall(r'key: "(\w+)"', phases)) == KEYS
    assert {path.name for path in assets.glob("*.js")} == set(SCRIPTS)
    for key in KEYS:
        assert f"[data-phase={key}]" in (assets / "style.css").read_text()
    for path in assets.iterdir():
        assert not re.search(r"https?://(?!www\.w3\.org/)", path.read_text()), path
        assert "innerHTML" not in path.read_text()
