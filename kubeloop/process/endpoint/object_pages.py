"""State of objects in the cluster, for the web page and `kubeloop top`; read from the API server when requested.

/debug/objects/pod     conditions, containers and Events of ?pod= in ?namespace=
/debug/objects/logs    the last lines of the log of its container ?container=; only over loopback
/debug/objects/owner   progress and problems of the workload ?owner=deployment/web in ?namespace=
/debug/objects/nodes   all nodes; with ?node=, this node and the requests of its pods

What the process may not read is an error of the API server, which the page shows.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.api_types import Node
from kubeloop.kube.objects.object_fields import is_finished
from kubeloop.kube.objects.resources import NODES, PODS, REPLICA_SETS
from kubeloop.kube.user_error import UserError
from kubeloop.kube.values.quantities import milli_value, value
from kubeloop.process.endpoint.server import EndpointServer, Page
from kubeloop.process.workload_progress import WORKLOAD_PROGRESS
from kubeloop.scheduler.cache.pod_requests import CPU, pod_requests

OBJECTS_PATH: Final = "/debug/objects"
NODES_PATH: Final = f"{OBJECTS_PATH}/nodes"
_LOG_LINES: Final = 200
_MAX_EVENTS: Final = 100
_NODES_SECONDS: Final = 2.0  # a list of nodes serves all requests within this time
_WORKLOADS: Final = {resource.singular: resource for resource in (*WORKLOAD_PROGRESS, REPLICA_SETS)}
_PROBLEMS: Final = {"ReplicaFailure": "True", "Progressing": "False", "Failed": "True", "FailureTarget": "True"}


def add_object_pages(endpoint: EndpointServer, client: ApiClient) -> None:
    pages = ObjectPages(client)
    for name, page in (("pod", pages.pod), ("owner", pages.owner), ("nodes", pages.nodes)):
        endpoint.add_page(f"{OBJECTS_PATH}/{name}", _reported(page))
    endpoint.add_page(f"{OBJECTS_PATH}/logs", _reported(pages.logs), only_on_loopback=True)


def _reported(page: Any) -> Page:
    """Return the page with errors of the API server as UserErrors."""

    async def read(query: Mapping[str, str]) -> Any:
        try:
            return await page(query)
        except ApiError as error:
            raise UserError(error.status.message or str(error), hint="see kubectl auth can-i") from None
        except ServerUnreachable as error:
            raise UserError(f"the API server does not respond: {error}", hint="retry later") from None

    return read


class ObjectPages:
    """Pages over the objects of one cluster. Query parameters are untrusted strings."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._nodes: list[JSON] = []
        self._nodes_at = float("-inf")
        self._listing = asyncio.Lock()

    async def pod(self, query: Mapping[str, str]) -> JSON:
        """Return conditions, containers and Events of a pod. Events are newest first; their error does not hide the
        pod."""
        namespace, name = query["namespace"], query["pod"]
        pod: Any = await self._client.get_raw(PODS, name, namespace)
        selector = urlencode({"fieldSelector": f"involvedObject.uid={pod['metadata']['uid']}"})
        events, problem = [], ""
        try:
            response = await self._client.raw("GET", f"/api/v1/namespaces/{quote(namespace)}/events?{selector}")
            events = [_event(event) for event in msgspec.json.decode(response.body)["items"]]
        except ApiError as error:
            problem = error.status.message or str(error)
        events.sort(key=lambda event: event["time"], reverse=True)
        status = pod.get("status") or {}
        return {
            "phase": status.get("phase", ""),
            "conditions": status.get("conditions") or [],
            "containers": _containers(pod["spec"], status),
            "events": events[:_MAX_EVENTS],
            "eventsProblem": problem,
        }

    async def logs(self, query: Mapping[str, str]) -> JSON:
        """Return the last lines of a container's log, as {"log"}."""
        namespace, name, container = quote(query["namespace"]), quote(query["pod"]), query.get("container", "")
        options = urlencode({"tailLines": _LOG_LINES} | ({"container": container} if container else {}))
        response = await self._client.raw("GET", f"/api/v1/namespaces/{namespace}/pods/{name}/log?{options}")
        return {"log": response.body.decode(errors="replace")}

    async def owner(self, query: Mapping[str, str]) -> JSON:
        """Return the state of a workload and the messages of its conditions that report a problem.

        {"state": "", "complete": None} for a kind whose progress is not known.
        """
        kind, _, name = query["owner"].partition("/")
        resource = _WORKLOADS.get(kind)
        if resource is None:
            return {"state": "", "complete": None, "problems": []}
        workload = await self._client.get(resource, name, query["namespace"])
        measure = WORKLOAD_PROGRESS.get(resource)
        if measure is None:
            replicas, available = workload.spec.replicas or 0, workload.status.available_replicas
            state, complete = f"{available} of {replicas} available", available == replicas
        else:
            progress = measure(workload)
            state, complete = progress.state, progress.complete
        conditions = getattr(workload.status, "conditions", ())
        problems = [
            f"{entry.reason}: {entry.message}" for entry in conditions if _PROBLEMS.get(entry.type) == entry.status
        ]
        return {"state": state, "complete": complete, "problems": problems}

    async def nodes(self, query: Mapping[str, str]) -> list[JSON]:
        """Return all nodes, or the node ?node= with the requests of its pods."""
        if name := query.get("node", ""):
            node = _node(await self._client.get(NODES, name))
            return [node | {"requested": await self._requested(name)}]
        loop = asyncio.get_running_loop()
        async with self._listing:
            if loop.time() - self._nodes_at > _NODES_SECONDS:
                self._nodes = [_node(node) for node in (await self._client.list_all(NODES)).items]
                self._nodes_at = loop.time()
        return self._nodes

    async def _requested(self, node: str) -> dict[str, int]:
        """Return the requests of the pods of a node: cpu in milli-CPUs, all others in units."""
        total: Counter[str] = Counter()
        async for page in self._client.pages(PODS, field_selector=f"spec.nodeName={node}"):
            if page.restarted:
                total.clear()
            for pod in page.items:
                if not is_finished(pod):
                    total.update(pod_requests(pod, use_status=True))
                    total["pods"] += 1
        return dict(total)


def _event(event: JSON) -> JSON:
    time = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or ""
    source = event.get("source") or {}
    return {
        "time": time,
        "type": event.get("type", ""),
        "reason": event.get("reason", ""),
        "message": event.get("message", ""),
        "count": max(event.get("count") or 1, (event.get("series") or {}).get("count", 0)),
        "from": source.get("component") or event.get("reportingComponent", ""),
    }


def _containers(spec: JSON, status: JSON) -> list[JSON]:
    """Return name, state and restarts of each container, init containers first."""
    containers = []
    for kind, statuses in (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")):
        present = {entry["name"]: entry for entry in status.get(statuses) or ()}
        for container in spec.get(kind) or ():
            entry = present.get(container["name"], {})
            states: dict[str, JSON] = entry.get("state") or {"waiting": {}}
            state, details = next(iter(states.items()))
            reason = ": ".join(filter(None, (details.get("reason", ""), details.get("message", ""))))
            containers.append(
                {
                    "name": container["name"],
                    "image": container.get("image", ""),
                    "state": state,
                    "reason": reason,
                    "ready": bool(entry.get("ready")),
                    "restarts": entry.get("restartCount", 0),
                }
            )
    return containers


def _node(node: Node) -> JSON:
    """Return what the list shows of a node. since: of its stage; reason: why it is not ready, or its taints."""
    ready = next((condition for condition in node.status.conditions if condition.type == "Ready"), None)
    stage = {"True": "ready", "False": "not ready"}.get(ready.status if ready else "", "unreachable")
    problem = f"{ready.reason}: {ready.message}" if ready is not None and ready.status != "True" else ""
    pressures = [
        condition.type
        for condition in node.status.conditions
        if condition.type != "Ready" and condition.status == "True"
    ]
    taints = [f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}" for taint in node.spec.taints]
    created = node.metadata.creation_timestamp
    since = ready.last_transition_time if ready is not None and ready.last_transition_time is not None else created
    return {
        "name": node.metadata.name,
        "stage": "cordoned" if node.spec.unschedulable and stage == "ready" else stage,
        "created": rfc3339(created) if created is not None else "",
        "since": rfc3339(since) if since is not None else "",
        "reason": "; ".join(filter(None, (problem, ", ".join(pressures), ", ".join(taints)))),
        "zone": node.metadata.labels.get("topology.kubernetes.io/zone", ""),
        "allocatable": {
            name: milli_value(quantity) if name == CPU else value(quantity)
            for name, quantity in node.status.allocatable.items()
        },
    }
