"""Operations of tests on a cluster, as coroutines: the implementation behind `Cluster`, `ClusterNamespace`, their
asynchronous forms and `MemoryCluster`. A failed wait reports the object's state, the scheduler's message and the last
events."""

from __future__ import annotations

import asyncio
import re
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.client.discovery import ResourceMap
from kubeloop.kube.errors import ApiError, NotFound, ServerUnreachable
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.api_types import Event, Pod
from kubeloop.kube.objects.resources import BY_GROUP_KIND, EVENTS, NAMESPACES, PODS, Resource
from kubeloop.kube.user_error import UserError
from kubeloop.process.endpoint.explain_pages import EXPLAIN_PATH
from kubeloop.process.endpoint.paths import TRACES_PATH
from kubeloop.process.manifests import Manifest, apply, objects_of, parse_manifests, read_manifests
from kubeloop.testing.description import unmet_reasons
from kubeloop.testing.wait_conditions import WaitCondition, parse_condition

ObjectTarget = str | Mapping[str, Any]
"""Target of an operation: "deployment/web", "po/web-1", "widgets.example.com/one", or an object (or manifest)."""

Manifests = str | Path | Mapping[str, Any] | Iterable["Manifests"]
"""Files, folders, YAML text and objects to apply."""

GetPage = Callable[[str, Mapping[str, str]], Awaitable[Any]]
"""Path and query of a page of the cluster's endpoint -> its JSON. Raises LookupError with the page's message."""

_RETRY_SECONDS = 0.05
_NAME_LENGTH = 40


class ServerWarning(UserWarning):
    """A warning of the API server about an applied object, as `kubectl apply` prints it."""


class WaitTimeout(TimeoutError):
    """A condition was not met in time; the text contains the actual state and the reasons."""


class WaitFailed(Exception):
    """A condition will never be met; the text contains the actual state and the reasons."""


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """Reference to an object: its resource, namespace and name."""

    resource: Resource[JSON]
    namespace: str
    name: str

    def __str__(self) -> str:
        group = f".{self.resource.group}" if self.resource.group else ""
        title = f"{self.resource.singular}{group}/{self.name}"
        return f"{title} in {self.namespace}" if self.namespace else title


class Operations:
    """Operations through one client, in one namespace by default.

    get_page: requests a page of the cluster's endpoint. why_ended: returns None while the cluster runs, else why it
    ended. Raises what `ApiClient` raises, and UserError for invalid arguments.
    """

    def __init__(
        self,
        client: ApiClient,
        get_page: GetPage,
        namespace: str,
        *,
        why_ended: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.client = client
        self.namespace = namespace
        self._get_page = get_page
        self._why_ended = why_ended
        self._resource_map: ResourceMap | None = None

    def within(self, namespace: str) -> Operations:
        """Return operations on the same cluster with another default namespace."""
        other = Operations(self.client, self._get_page, namespace, why_ended=self._why_ended)
        other._resource_map = self._resource_map
        return other

    async def apply(self, *manifests: Manifests) -> list[str]:
        """Apply files, folders, YAML text, objects, or sequences of these, as `kubectl apply` does; returns kubectl's
        output, a line per object. Emits a ServerWarning for each warning of the server.

        Raises UserError for input that cannot be read or is rejected, with the server's message.
        """
        objects: list[Manifest] = []
        try:
            objects += _objects(manifests)
            outcomes = await apply(
                self.client,
                objects,
                default_namespace=self.namespace,
                resources=await self._resources(),
                on_warning=_emit_warning,
            )
        except UserError as error:
            raise _with_hint(error) from None
        if any(manifest.kind == "CustomResourceDefinition" for manifest in objects):
            self._resource_map = None
        return [f"{title} {outcome}" for title, outcome in outcomes]

    async def get(self, target: ObjectTarget, *, namespace: str | None = None) -> JSON:
        """Return the object as plain JSON. Raises NotFound."""
        ref = await self.resolve(target, namespace)
        return await self.client.get(ref.resource, ref.name, ref.namespace)

    async def delete(self, target: ObjectTarget, *, namespace: str | None = None) -> None:
        """Delete the object, and its dependents in the background. Raises NotFound."""
        ref = await self.resolve(target, namespace)
        await self.client.delete(ref.resource, ref.name, ref.namespace, propagation_policy="Background")

    async def wait_for(
        self, target: ObjectTarget, condition: WaitCondition, timeout: float = 30.0, *, namespace: str | None = None
    ) -> JSON:
        """Wait until `target`, which need not exist yet, meets `condition`; return the object in that state (its last
        state if it is deleted; {} if it never existed).

        condition: "Available", "Ready=False", "complete" (a workload, as `kubectl rollout status` defines it),
        "create", "delete", "{.status.phase}=Running", or a function of the object. timeout: seconds.

        Raises WaitTimeout with the reasons: conditions, pending pods with the scheduler's message, events. Raises
        WaitFailed, with the same, as soon as the condition can no longer be met, such as "complete" by a failed Job.
        """
        __tracebackhide__ = True
        try:
            holds, description, why_never = parse_condition(condition)
            ref = await self.resolve(target, namespace)
        except UserError as error:
            raise _with_hint(error) from None
        latest: JSON | None = None
        try:
            async with asyncio.timeout(timeout), aclosing(self._states(ref)) as states:
                async for obj in states:
                    if holds(obj):
                        return obj or latest or {}
                    latest = obj
                    if never := why_never(obj):
                        break
        except TimeoutError:
            never = ""
        reasons = await self._unmet_reasons(ref, latest)
        if never:
            raise WaitFailed("\n  ".join([f"{ref}: will not be {description}: {never}", *reasons]))
        raise WaitTimeout("\n  ".join([f"{ref}: not {description} after {timeout:g} s", *reasons]))

    async def events(self, target: ObjectTarget | None = None, *, namespace: str | None = None) -> list[Event]:
        """Return the namespace's events, oldest first; with `target`, only its events."""
        ref = None if target is None else await self.resolve(target, namespace)
        page = await self.client.list_all(EVENTS, self.namespace if namespace is None else namespace)
        events = page.items
        if ref is not None:
            events = [event for event in events if _is_about(event, ref)]
        return sorted(events, key=lambda event: int(event.metadata.resource_version or 0))

    async def pods(self, *, namespace: str | None = None) -> list[Pod]:
        """Return the namespace's pods, sorted by name."""
        page = await self.client.list_all(PODS, self.namespace if namespace is None else namespace)
        return sorted(page.items, key=lambda pod: pod.metadata.name)

    async def trace(self, pod: str | Pod | Mapping[str, Any], *, namespace: str | None = None) -> JSON:
        """Return the pod's trace in the format of `kubeloop trace --json`. Raises LookupError if there is none."""
        return await self._get_pod_page(TRACES_PATH, pod, namespace)

    async def slowest_trace(self, *, namespace: str | None = None) -> JSON:
        """Return the trace of the namespace's pod with the longest time to binding. Raises LookupError if none."""
        query = {"namespace": self.namespace if namespace is None else namespace}
        trace: JSON = await self._get_page(TRACES_PATH, query)
        return trace

    async def explain(self, pod: str | Pod | Mapping[str, Any], *, namespace: str | None = None) -> JSON:
        """Return why the pod is pending, in the format of `kubeloop explain --json`. Raises LookupError if the pod or
        the scheduler does not exist."""
        return await self._get_pod_page(EXPLAIN_PATH, pod, namespace)

    async def pending_reason(self, pod: Pod) -> str:
        """Return the scheduler's message on a pod without a node, in a sentence."""
        try:
            return str((await self.explain(pod))["summary"])
        except LookupError as error:
            return str(error.args[0])

    async def kinds(self) -> list[Resource[JSON]]:
        """Return the namespaced resources that support list, each in one version."""
        resource_map = await self._resources()
        listable = [
            resource
            for resource in resource_map.resources
            if resource.namespaced and "list" in resource_map.verbs(resource)
        ]
        return list({resource.group_resource: resource for resource in reversed(listable)}.values())[::-1]

    # --- namespaces ---------------------------------------------------------------------------------------------------

    async def create_namespace(self, prefix: str = "") -> str:
        """Create a namespace with a unique name that begins with `prefix`. Returns its name."""
        start = re.sub(r"[^a-z0-9]+", "-", prefix.lower()).strip("-")[:_NAME_LENGTH].rstrip("-") or "test"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": f"{start}-"}}
        return (await self.client.create(NAMESPACES, body)).metadata.name

    async def delete_namespace(self, name: str) -> None:
        """Start the deletion of a namespace with all its content."""
        try:
            await self.client.delete(NAMESPACES, name)
        except NotFound:
            return  # deleted by the test

    async def namespaces_gone(self, names: Sequence[str], timeout: float) -> dict[str, str]:
        """Wait until none of `names` exists. Returns those left after `timeout` seconds, with the reason."""
        deadline = asyncio.get_running_loop().time() + timeout
        while True:
            existing = {
                namespace.metadata.name: namespace for namespace in (await self.client.list_all(NAMESPACES)).items
            }
            remaining = [existing[name] for name in names if name in existing]
            if not remaining:
                return {}
            if asyncio.get_running_loop().time() >= deadline:
                break
            await asyncio.sleep(_RETRY_SECONDS)
        return {
            namespace.metadata.name: "; ".join(
                condition.message for condition in namespace.status.conditions if condition.status == "True"
            )
            or "the namespace controller has not processed it yet"
            for namespace in remaining
        }

    # --- lookup -------------------------------------------------------------------------------------------------------

    async def _resources(self) -> ResourceMap:
        if self._resource_map is None:
            self._resource_map = await ResourceMap.discover(self.client)
        return self._resource_map

    async def resolve(self, target: ObjectTarget, namespace: str | None) -> ObjectRef:
        within = self.namespace if namespace is None else namespace
        if isinstance(target, str):
            resource_name, slash, name = target.partition("/")
            if not slash or not name or "/" in name:
                raise UserError(f"cannot parse the target '{target}'", hint="use for example deployment/web")
            resource = await self._resource(lambda resource_map: _find_resource(resource_map, resource_name.lower()))
            if resource is None:
                raise UserError(f"the server has no resource '{resource_name}'", hint="see kubectl api-resources")
        else:
            body = _body_of(target)
            name, kind = str(body["metadata"]["name"]), str(body["kind"])
            version = str(body["apiVersion"])
            resource = await self._resource(lambda resource_map: resource_map.find(version, kind))
            if resource is None:
                raise UserError(f"the server has no kind {kind} in {version}", hint="see kubectl api-resources")
            within = str(body["metadata"].get("namespace") or within)
        return ObjectRef(resource, within if resource.namespaced else "", name)

    async def _resource(self, find: Callable[[ResourceMap], Resource[JSON] | None]) -> Resource[JSON] | None:
        """Return the resource that `find` selects; repeat the discovery if it finds none in cached resources."""
        fresh = self._resource_map is None
        resource = find(await self._resources())
        if resource is None and not fresh:
            self._resource_map = None
            resource = find(await self._resources())
        return resource

    async def _states(self, ref: ObjectRef) -> AsyncGenerator[JSON | None, None]:
        """Yield the object's current state and each change; None if it does not exist. Survives lost watches."""
        selector = f"metadata.name={ref.name}"
        while True:
            try:
                page = await self.client.list(ref.resource, ref.namespace, field_selector=selector)
                yield _typed(page.items[0], ref) if page.items else None
                async with self.client.watch(
                    ref.resource,
                    ref.namespace,
                    resource_version=page.metadata.resource_version,
                    field_selector=selector,
                ) as changes:
                    async for change in changes:
                        if change.type == "ERROR":
                            break
                        if change.type != "BOOKMARK":
                            yield None if change.type == "DELETED" else change.object
            except (ServerUnreachable, ApiError) as error:
                ended = self._why_ended()
                if ended is not None:
                    raise ServerUnreachable(ended, maybe_applied=False) from None
                if isinstance(error, ApiError) and error.code < 500 and error.code not in (410, 429):
                    raise
            await asyncio.sleep(_RETRY_SECONDS)

    async def _unmet_reasons(self, ref: ObjectRef, latest: JSON | None) -> list[str]:
        namespace = ref.namespace or self.namespace
        pods, events = await self.pods(namespace=namespace), await self.events(namespace=namespace)

        return await unmet_reasons(ref.resource, ref.name, latest, pods, events, self.pending_reason)

    async def _get_pod_page(self, path: str, pod: str | Pod | Mapping[str, Any], namespace: str | None) -> JSON:
        within = self.namespace if namespace is None else namespace
        if isinstance(pod, Pod):
            name, within = pod.metadata.name, pod.metadata.namespace
        elif isinstance(pod, str):
            name = pod.removeprefix("pod/")
        else:
            metadata = _body_of(pod)["metadata"]
            name, within = metadata["name"], metadata.get("namespace") or within
        page: JSON = await self._get_page(path, {"namespace": within, "pod": name})
        return page


def _objects(manifests: Manifests) -> Iterator[Manifest]:
    """Yield the objects that `Operations.apply` takes. Raises UserError."""
    if isinstance(manifests, Mapping):
        yield from objects_of("an object of the test", dict(manifests))
    elif isinstance(manifests, str) and "\n" in manifests:
        yield from parse_manifests("text of the test", manifests)
    elif isinstance(manifests, str | Path):
        yield from read_manifests([Path(manifests)])
    elif isinstance(manifests, Iterable):
        for manifest in manifests:
            yield from _objects(manifest)
    else:
        raise UserError(
            f"cannot apply a {type(manifests).__name__}", hint="apply takes files, folders, YAML text and objects"
        )


def _emit_warning(warning: str) -> None:
    # the test's own line is on the stack of another thread
    warnings.warn_explicit(warning, ServerWarning, filename="apply", lineno=0)


def _with_hint(error: UserError) -> UserError:
    """Add the hint as a note, since a test has no command line that prints it."""
    if error.hint:
        error.add_note(f"hint: {error.hint}")
    return error


def _typed(obj: JSON, ref: ObjectRef) -> JSON:
    """Return a list item with apiVersion and kind, which items of a list lack."""
    return {"apiVersion": ref.resource.api_version, "kind": ref.resource.kind, **obj}


def _body_of(target: Any) -> Mapping[str, Any]:
    """Return the plain JSON of an object of any library: a mapping itself, or its `raw` (kr8s) or `to_dict()`."""
    body = getattr(target, "raw", target)
    if not isinstance(body, Mapping) and hasattr(body, "to_dict"):
        body = body.to_dict()
    if isinstance(body, Mapping) and "api_version" in body:  # spelling of the generated clients
        body = {**body, "apiVersion": body["api_version"]}
    if not isinstance(body, Mapping) or not isinstance(body.get("metadata"), Mapping) or not body.get("kind"):
        raise UserError(
            f"cannot identify the object of a {type(target).__name__}",
            hint="use deployment/web, or an object with apiVersion, kind and metadata.name",
        )
    return body


def _find_resource(resource_map: ResourceMap, resource_name: str) -> Resource[JSON] | None:
    """Resolve a resource name as kubectl does: plural, singular, kind or short name, with or without its group."""
    word, _, group = resource_name.partition(".")
    for resource in resource_map.resources:
        usual = BY_GROUP_KIND.get((resource.group, resource.kind))
        short_names = {*resource.short_names, *(usual.short_names if usual is not None else ())}
        if word in {resource.plural, resource.singular, resource.kind.lower()} | short_names and group in (
            "",
            resource.group,
            f"{resource.version}.{resource.group}",
        ):
            return resource
    return None


def _is_about(event: Event, ref: ObjectRef) -> bool:
    involved = event.involved_object
    return (involved.kind, involved.name, involved.namespace) == (ref.resource.kind, ref.name, ref.namespace)
