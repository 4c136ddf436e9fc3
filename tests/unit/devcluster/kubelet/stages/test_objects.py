"""Stages of other kinds than pods and nodes: CEL selectors, patches, deletion, applied objects, custom resources."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from kubeloop.devcluster.kubelet.stages.files import Stage
from kubeloop.devcluster.kubelet.stages.lifecycle import delay_seconds, select_stage
from kubeloop.devcluster.kubelet.stages.objects import ObjectStages
from kubeloop.devcluster.kubelet.stages.requests import StageRequests
from support.apiserver.api_requests import InProcessApi
from support.simulation.set_clock import SetClock

JSON = dict[str, Any]
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


class Cluster:
    """An API server in this process, to whose objects stages are applied."""

    def __init__(self) -> None:
        self.clock = SetClock(NOW)
        self._api = InProcessApi(token="secret", clock=self.clock, default_headers={"authorization": "Bearer secret"})
        self.api = self._api.server

    def request(self, method: str, path: str, body: Any = None) -> JSON:
        """Return the content of the response, with its status as "code"."""
        status, content = self._api(method, path, body)
        return {**content, "code": status}

    @asynccontextmanager
    async def applying(self, stages: list[Stage]) -> AsyncIterator[None]:
        requests = StageRequests(self.api.handle_in_process, "secret")
        object_stages = ObjectStages(stages, requests, self.api.store, clock=self.clock, rng=random.Random(1))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(object_stages.run())
            yield
            task.cancel()

    async def until(self, path: str, condition: Callable[[JSON], Any]) -> JSON:
        """Get `path` until `condition` is true for the response; return the response."""
        async with asyncio.timeout(60):
            while True:
                response = self.request("GET", path)
                if condition(response):
                    return response
                await asyncio.sleep(0.01)


def stage(name: str, steps: str, *, kind: str = "{apiGroup: v1, kind: ConfigMap}", when: str = "true") -> str:
    return f"""
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {{name: {name}}}
spec:
  resourceRef: {kind}
  selector:
    matchExpressions:
    - cel: {{expression: "{when}"}}
  steps:
{steps}
"""


def config_map(name: str, **data: str) -> JSON:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_selected_object_is_patched_and_other_object_applied(read_stage_texts):
    steps = """
  - event: {type: Normal, reason: Applied, message: stage was applied}
  - patch: {root: data, template: "seen: 'yes'"}
  - finalizers: {add: [{value: example.com/hold}]}
  - apply:
      template: |
        apiVersion: v1
        kind: Secret
        metadata: {name: "{{ .metadata.name }}-secret"}
        stringData: {of: "{{ .data.color }}"}
"""
    stages = read_stage_texts(stage("paint", steps, when="self.data.color == 'red' && !('seen' in self.data)"))
    cluster = Cluster()
    cluster.request("POST", CONFIG_MAPS, config_map("red", color="red"))
    cluster.request("POST", CONFIG_MAPS, config_map("bare"))
    async with cluster.applying(stages):
        red = await cluster.until(f"{CONFIG_MAPS}/red", lambda response: "finalizers" in response["metadata"])
        secret = await cluster.until(
            "/api/v1/namespaces/default/secrets/red-secret", lambda response: response["code"] == 200
        )
        cluster.request("POST", CONFIG_MAPS, config_map("later", color="red"))
        await cluster.until(f"{CONFIG_MAPS}/later", lambda response: response["data"].get("seen") == "yes")
    assert red["data"] == {"color": "red", "seen": "yes"}
    assert secret["data"] == {"of": "cmVk"}
    assert "seen" not in cluster.request("GET", f"{CONFIG_MAPS}/bare").get("data", {})
    events = cluster.request("GET", "/api/v1/namespaces/default/events")["items"]
    assert {event["reason"] for event in events} == {"Applied"}


async def test_apply_patches_existing_object_and_subresource(read_stage_texts):
    applied = """
  - apply:
      type: merge
      subresource: status
      template: |
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: web}
        status: {replicas: 3}
  - apply:
      template: |
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: other}
        data: {b: "2"}
  - delete: true
"""
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }
    cluster = Cluster()
    path = "/apis/apps/v1/namespaces/default/deployments"
    assert cluster.request("POST", path, deployment)["code"] == 201
    cluster.request("POST", CONFIG_MAPS, config_map("other", a="1"))
    cluster.request("POST", CONFIG_MAPS, config_map("trigger"))
    async with cluster.applying(read_stage_texts(stage("apply", applied, when="self.metadata.name == 'trigger'"))):
        await cluster.until(f"{CONFIG_MAPS}/trigger", lambda response: response["code"] == 404)
    assert cluster.request("GET", f"{path}/web")["status"]["replicas"] == 3
    assert cluster.request("GET", f"{CONFIG_MAPS}/other")["data"] == {"a": "1", "b": "2"}


async def test_stages_apply_to_custom_resources_once_served(read_stage_texts):
    kind = "{apiGroup: example.com/v1, kind: Thing}"
    steps = '  - patch: {subresource: status, root: status, template: "phase: Ready"}'
    stages = read_stage_texts(stage("ready", steps, kind=kind, when="!has(self.status)"))
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                }
            ],
        },
    }
    cluster = Cluster()
    async with cluster.applying(stages):
        await asyncio.sleep(0.05)
        assert (
            cluster.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)["code"]
            == 201
        )
        thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "one"}}
        assert cluster.request("POST", "/apis/example.com/v1/things", thing)["code"] == 201
        thing = await cluster.until("/apis/example.com/v1/things/one", lambda response: "status" in response)
    assert thing["status"] == {"phase": "Ready"}


async def test_failing_stage_is_reported_in_event(read_stage_texts):
    steps = """
  - apply:
      template: |
        apiVersion: example.com/v1
        kind: Unknown
"""
    cluster = Cluster()
    cluster.request("POST", CONFIG_MAPS, config_map("a"))
    async with cluster.applying(read_stage_texts(stage("wrong", steps))):
        await cluster.until("/api/v1/namespaces/default/events", lambda response: response["items"])
    event = cluster.request("GET", "/api/v1/namespaces/default/events")["items"][0]
    assert (event["reason"], event["message"]) == (
        "StageFailed",
        "stage wrong failed: kind Unknown is not served in example.com/v1",
    )


def test_weight_delay_and_selector_are_cel_expressions(read_stage_texts):
    text = stage("one", "  - delete: true", when="Quantity('1Gi') * 2 > Quantity('1500Mi')")
    spec = """  weightFrom: {cel: {expression: "size(self.data)"}}
  delay:
    durationFrom: {cel: {expression: "self.data.seconds"}}
    jitterDurationFrom: {cel: {expression: "duration('5s') + duration(self.data.seconds)"}}
"""
    one, other = read_stage_texts(text + spec, stage("other", "  - delete: true", when="self.SinceSecond() > 5.0"))
    rng = random.Random(1)
    obj = {"metadata": {"name": "a", "creationTimestamp": "2026-01-01T11:59:50Z"}, "data": {"seconds": "2s"}}
    assert select_stage([one, other], obj, {}, NOW, rng) is one  # the weight of `other` is 0
    assert 2 <= delay_seconds(one, obj, {}, NOW, rng) <= 7
    young = {**obj, "metadata": {"name": "a", "creationTimestamp": "2026-01-01T11:59:58Z"}, "data": {}}
    assert select_stage([one, other], young, {}, NOW, rng) is one
    assert delay_seconds(one, young, {}, NOW, rng) == 0  # the expression fails: no such field


async def test_jq_expression_is_evaluated_in_the_background_if_it_may_not_end(read_stage_texts):
    text = stage("paint", "  - patch: {root: data, template: \"seen: 'yes'\"}").replace(
        """cel: {expression: "true"}""", """jq: {key: '.data.color | test("^re")', operator: In, values: ["true"]}"""
    )
    cluster = Cluster()
    async with cluster.applying(read_stage_texts(text)):
        cluster.request("POST", CONFIG_MAPS, config_map("blue", color="blue"))
        cluster.request("POST", CONFIG_MAPS, config_map("red", color="red"))
        await cluster.until(f"{CONFIG_MAPS}/red", lambda response: response["data"].get("seen") == "yes")
    assert "seen" not in cluster.request("GET", f"{CONFIG_MAPS}/blue")["data"]
