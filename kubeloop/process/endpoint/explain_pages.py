"""/debug/explain: the explanation of a pending pod, the pods of an owner, or a pod group, for `kubeloop explain`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kubeloop.process.endpoint.trace_targets import POD_GROUP_KIND, Target, resolve

if TYPE_CHECKING:
    from kubeloop.process.control_plane.control_plane import ControlPlane
    from kubeloop.process.endpoint.server import EndpointServer
    from kubeloop.scheduler.scheduler import Scheduler

EXPLAIN_PATH = "/debug/explain"


def add_explain_pages(endpoint: EndpointServer, plane: ControlPlane) -> None:
    """Add the page that `kubeloop explain` reads."""

    async def explain(query: Mapping[str, str]) -> Any:
        scheduler = plane.scheduler
        if scheduler is None:
            starting = "scheduler" in plane.settings.controllers
            raise KeyError("the scheduler has not started yet" if starting else "this process runs no scheduler")
        namespace, with_scores = query.get("namespace", ""), query.get("scores") == "true"
        if "owner" in query:
            from kubeloop.process.endpoint.owner_pods import find_owner, first_pending, owner_document

            kind, _, name = query["owner"].partition("/")
            if kind == POD_GROUP_KIND:
                return await explain_group(scheduler, namespace, name)
            all_pods = scheduler.listers.pods
            candidates = all_pods.by_index("namespace", namespace) if namespace else all_pods.list()
            owner, pods = await find_owner(plane.client, Target(kind, name, namespace), candidates)
            pod = first_pending(pods)
            explanation = await explain_pod(scheduler, pod.key, with_scores) if pod is not None else {}
            return explanation | owner_document(owner, pods)
        if "pod" not in query:
            raise KeyError(f"no pod in the query; use {EXPLAIN_PATH}?namespace=NAMESPACE&pod=NAME")
        key = f"{namespace or 'default'}/{query['pod']}"
        if scheduler.listers.pods.get(key) is None:
            existing = {(pod.metadata.namespace, pod.metadata.name) for pod in scheduler.listers.pods.list()}
            key = f"{resolve('pod', query['pod'], namespace, existing, incomplete='')}/{query['pod']}"
        return await explain_pod(scheduler, key, with_scores)

    async def explain_group(scheduler: Scheduler, namespace: str, name: str) -> dict[str, Any]:
        from kubeloop.scheduler.cache.pod_groups import pod_group_key
        from kubeloop.scheduler.explain.pod_group import explain_pod_group

        if scheduler.pod_group_cycle is None:
            raise KeyError("pod groups are disabled; the feature gate GenericWorkload enables them")
        groups = {group.key for group in scheduler.listers.pod_groups.list()}
        groups |= {pod_group_key(pod) for pod in scheduler.listers.pods.list()} - {""}
        existing = {(own_namespace, own_name) for own_namespace, _, own_name in (key.partition("/") for key in groups)}
        key = f"{resolve('podgroup', name, namespace, existing, incomplete='')}/{name}"
        explanation = explain_pod_group(scheduler, key, scheduler.pod_group_cycle.failed.get(key))
        pod = await explain_pod(scheduler, explanation.unfit_pod) if explanation.unfit_pod else None
        return explanation.to_json() | {"scheduling": scheduler.is_running, "pod": pod}

    async def explain_pod(scheduler: Scheduler, key: str, with_scores: bool = False) -> dict[str, Any]:
        from kubeloop.scheduler.explain.pending_pod import explain_in_slices

        return (await explain_in_slices(scheduler, key, with_scores=with_scores)).to_json() | {
            "scheduling": scheduler.is_running
        }

    endpoint.add_page(EXPLAIN_PATH, explain)


def add_cluster_explain_page(endpoint: EndpointServer, explain: Callable[[Target, bool], dict[str, Any]]) -> None:
    """Add the page of a process that does not schedule. `explain` reads the cluster and computes scores if its second
    argument is true; it blocks and runs in a thread, one at a time."""
    explaining = asyncio.Lock()

    async def page(query: Mapping[str, str]) -> Any:
        if "pod" not in query:
            raise KeyError(f"no pod in the query; use {EXPLAIN_PATH}?namespace=NAMESPACE&pod=NAME")
        async with explaining:
            target = Target("pod", query["pod"], query.get("namespace", ""))
            return await asyncio.to_thread(explain, target, query.get("scores") == "true")

    endpoint.add_page(EXPLAIN_PATH, page)
