"""What tests do with a cluster, as coroutines: the one implementation behind `Cluster`, `Namespace`, their asynchronous
forms and `MemoryCluster`. A failure to wait says why: with the object, the scheduler's message and the last events."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubeloop.kube.client.api_client import Client
from kubeloop.kube.client.discovery import ResourceMap
from kubeloop.kube.errors import ApiError, NotFound, ServerUnreachable, UserError
from kubeloop.kube.objects.api_types import Event, Pod
from kubeloop.kube.objects.resources import BY_GROUP_KIND, EVENTS, NAMESPACES, PODS, Resource
from kubeloop.process.endpoint.explain_pages import EXPLAIN_PATH
from kubeloop.process.endpoint.trace_targets import TRACES_PATH
from kubeloop.process.manifests import Manifest, apply, parse_manifests, read_manifests
from kubeloop.testing.description import unmet_reasons
from kubeloop.testing.wait_conditions import Condition, parse_condition

JSON = dict[str, Any]
Target = str | Mapping[str, Any]
"""What a call is about: "deployment/web", "po/web-1", "widgets.example.com/one", or an object (or manifest)."""

GetPage = Callable[[str, Mapping[str, str]], Awaitable[Any]]
"""Path and query of a page of the cluster's endpoint -> its JSON. Raises LookupError with the page's own words."""

_RETRY_SECONDS = 0.05
_NAME_LENGTH = 40


class WaitTimeout(TimeoutError):
    """What was waited for has not come; the text says what there is instead, and why."""


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """One object: which resource, and its name."""

    resource: Resource[JSON]
    namespace: str
    name: str

    def __str__(self) -> str:
        group = f".{self.resource.group}" if self.resource.group else ""
        title = f"{self.resource.singular}{group}/{self.name}"
        return f"{title} in {self.namespace}" if self.namespace else title


class Operations:
    """All that a test does through one client, in one namespace unless it says another.

    ask: how the cluster's endpoint is asked. why_ended: None while the cluster runs, else why it does not. Raises what
    `Client` raises, and UserError for what the test has written wrong.
    """

    def __init__(
        self, client: Client, get_page: GetPage, namespace: str, *, why_ended: Callable[[], str | None] = lambda: None
    ) -> None:
        self.client = client
        self.namespace = namespace
        self._get_page = get_page
        self._why_ended = why_ended
        self._resource_map: ResourceMap | None = None

    def within(self, namespace: str) -> Operations:
        """The same cluster, with another namespace to begin with."""
        other = Operations(self.client, self._get_page, namespace, why_ended=self._why_ended)
        other._resource_map = self._resource_map
        return other

    async def apply(self, *manifests: str | Path | Mapping[str, Any]) -> list[str]:
        """Apply files, folders, YAML text or objects, as `kubectl apply` does; returns what kubectl would print, a line
        for each object.

        Raises UserError for what cannot be read or is refused, with the server's own words.
        """
        objects: list[Manifest] = []
        try:
            for manifest in manifests:
                if isinstance(manifest, Mapping):
                    objects.append(Manifest("an object of the test", dict(manifest)))
                elif isinstance(manifest, str) and "\n" in manifest:
                    objects += parse_manifests("text of the test", manifest)
                else:
                    objects += read_manifests([Path(manifest)])
            outcomes = await apply(
                self.client, objects, default_namespace=self.namespace, resources=await self._resources()
            )
        except UserError as error:
            raise _with_hint(error) from None
        if any(manifest.kind == "CustomResourceDefinition" for manifest in objects):
            self._resource_map = None
        return [f"{title} {outcome}" for title, outcome in outcomes]

    async def get(self, target: Target, *, namespace: str | None = None) -> JSON:
        """The object as plain JSON. Raises NotFound."""
        ref = await self._object_ref(target, namespace)
        return await self.client.get(ref.resource, ref.name, ref.namespace)

    async def delete(self, target: Target, *, namespace: str | None = None) -> None:
        """Delete the object, and in the background what it owns. Raises NotFound."""
        ref = await self._object_ref(target, namespace)
        await self.client.delete(ref.resource, ref.name, ref.namespace, propagation_policy="Background")

    async def wait_for(
        self, target: Target, condition: Condition, timeout: float = 30.0, *, namespace: str | None = None
    ) -> JSON:
        """Wait until `condition` holds of `target`, which need not exist yet; returns the object as it then is (as it
        last was, if it is gone; {} if it never was there).

        condition: "Available", "Ready=False", "complete" (a workload as `kubectl rollout status` means it), "create",
        "delete", "{.status.phase}=Running", or a function of the object. timeout: seconds.

        Raises WaitTimeout, which says why: conditions, pods that are pending and what the scheduler says, events.
        """
        __tracebackhide__ = True
        try:
            holds, wanted = parse_condition(condition)
            ref = await self._object_ref(target, namespace)
        except UserError as error:
            raise _with_hint(error) from None
        latest: JSON | None = None
        try:
            async with asyncio.timeout(timeout), aclosing(self._states(ref)) as states:
                async for seen in states:
                    if holds(seen):
                        return seen or latest or {}
                    latest = seen
        except TimeoutError:
            reasons = await self._unmet_reasons(ref, latest)
        raise WaitTimeout("\n  ".join([f"{ref}: not {wanted} after {timeout:g} s", *reasons]))

    async def events(self, target: Target | None = None, *, namespace: str | None = None) -> list[Event]:
        """The namespace's events, oldest first; those about `target` alone, if it is given."""
        ref = None if target is None else await self._object_ref(target, namespace)
        page = await self.client.list_all(EVENTS, self.namespace if namespace is None else namespace)
        found = page.items
        if ref is not None:
            found = [each for each in found if _is_about(each, ref)]
        return sorted(found, key=lambda each: int(each.metadata.resource_version or 0))

    async def pods(self, *, namespace: str | None = None) -> list[Pod]:
        """The namespace's pods, by name."""
        page = await self.client.list_all(PODS, self.namespace if namespace is None else namespace)
        return sorted(page.items, key=lambda pod: pod.metadata.name)

    async def trace(self, pod: str | Pod | Mapping[str, Any], *, namespace: str | None = None) -> JSON:
        """The pod's trace, as `kubeloop trace --json` prints it. Raises LookupError if there is none."""
        return await self._get_pod_page(TRACES_PATH, pod, namespace)

    async def slowest_trace(self, *, namespace: str | None = None) -> JSON:
        """The trace of the namespace's pod that took longest to be bound. Raises LookupError if there is none."""
        query = {"namespace": self.namespace if namespace is None else namespace}
        found: JSON = await self._get_page(TRACES_PATH, query)
        return found

    async def explain(self, pod: str | Pod | Mapping[str, Any], *, namespace: str | None = None) -> JSON:
        """Why the pod is pending, as `kubeloop explain --json` prints it. Raises LookupError if there is no such pod,
        or no scheduler."""
        return await self._get_pod_page(EXPLAIN_PATH, pod, namespace)

    async def pending_reason(self, pod: Pod) -> str:
        """What the scheduler says of a pod without a node, in a sentence."""
        try:
            return str((await self.explain(pod))["summary"])
        except LookupError as error:
            return str(error.args[0])

    async def kinds(self) -> list[Resource[JSON]]:
        """The namespaced resources whose objects can be listed, each in one version."""
        resource_map = await self._resources()
        listed = [each for each in resource_map.resources if each.namespaced and "list" in resource_map.verbs(each)]
        return list({each.group_resource: each for each in reversed(listed)}.values())[::-1]

    # --- namespaces ---------------------------------------------------------------------------------------------------

    async def create_namespace(self, prefix: str = "") -> str:
        """Make a namespace that did not exist; `prefix` is what its name begins with. Returns its name."""
        start = re.sub(r"[^a-z0-9]+", "-", prefix.lower()).strip("-")[:_NAME_LENGTH].rstrip("-") or "test"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": f"{start}-"}}
        return (await self.client.create(NAMESPACES, body)).metadata.name

    async def delete_namespace(self, name: str) -> None:
        """Have it removed with all that it holds; that goes on in the background."""
        try:
            await self.client.delete(NAMESPACES, name)
        except NotFound:
            return  # the test has done it

    async def namespaces_gone(self, names: Sequence[str], timeout: float) -> dict[str, str]:
        """Wait until none of `names` is there. Returns those that are left after `timeout` seconds, and why."""
        deadline = asyncio.get_running_loop().time() + timeout
        while True:
            there = {each.metadata.name: each for each in (await self.client.list_all(NAMESPACES)).items}
            left = [there[name] for name in names if name in there]
            if not left:
                return {}
            if asyncio.get_running_loop().time() >= deadline:
                break
            await asyncio.sleep(_RETRY_SECONDS)
        return {
            namespace.metadata.name: "; ".join(
                condition.message for condition in namespace.status.conditions if condition.status == "True"
            )
            or "no controller has begun to empty it"
            for namespace in left
        }

    # --- finding out --------------------------------------------------------------------------------------------------

    async def _resources(self) -> ResourceMap:
        if self._resource_map is None:
            self._resource_map = await ResourceMap.discover(self.client)
        return self._resource_map

    async def _object_ref(self, target: Target, namespace: str | None) -> ObjectRef:
        within = self.namespace if namespace is None else namespace
        if isinstance(target, str):
            written, slash, name = target.partition("/")
            if not slash or not name or "/" in name:
                raise UserError(f"cannot tell which object '{target}' is", hint="say for example deployment/web")
            resource = await self._resource(lambda resource_map: _find_resource(resource_map, written.lower()))
            if resource is None:
                raise UserError(f"the server has no resource '{written}'", hint="kubectl api-resources lists them")
        else:
            body = _body_of(target)
            name, kind = str(body["metadata"]["name"]), str(body["kind"])
            version = str(body["apiVersion"])
            resource = await self._resource(lambda resource_map: resource_map.find(version, kind))
            if resource is None:
                raise UserError(f"the server has no kind {kind} in {version}", hint="kubectl api-resources lists them")
            within = str(body["metadata"].get("namespace") or within)
        return ObjectRef(resource, within if resource.namespaced else "", name)

    async def _resource(self, find: Callable[[ResourceMap], Resource[JSON] | None]) -> Resource[JSON] | None:
        """What `find` finds among what the server serves, which may have become more since we asked."""
        fresh = self._resource_map is None
        found = find(await self._resources())
        if found is None and not fresh:
            self._resource_map = None
            found = find(await self._resources())
        return found

    async def _states(self, ref: ObjectRef) -> AsyncGenerator[JSON | None, None]:
        """The object whenever it changes, from now on; None where there is none. Goes on over lost watches."""
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
        found: JSON = await self._get_page(path, {"namespace": within, "pod": name})
        return found


def _with_hint(error: UserError) -> UserError:
    """Where a test fails there is no command line to print the hint."""
    if error.hint:
        error.add_note(f"hint: {error.hint}")
    return error


def _typed(obj: JSON, ref: ObjectRef) -> JSON:
    """Items of a list do not repeat what the list says."""
    return {"apiVersion": ref.resource.api_version, "kind": ref.resource.kind, **obj}


def _body_of(target: Any) -> Mapping[str, Any]:
    """The plain JSON of an object of any library: a mapping itself, or what has it as `raw` (kr8s) or `to_dict()`."""
    body = getattr(target, "raw", target)
    if not isinstance(body, Mapping) and hasattr(body, "to_dict"):
        body = body.to_dict()
    if isinstance(body, Mapping) and "api_version" in body:  # the generated clients' own spelling
        body = {**body, "apiVersion": body["api_version"]}
    if not isinstance(body, Mapping) or not isinstance(body.get("metadata"), Mapping) or not body.get("kind"):
        raise UserError(
            f"cannot tell which object a {type(target).__name__} is",
            hint="give deployment/web, or an object with apiVersion, kind and metadata.name",
        )
    return body


def _find_resource(resource_map: ResourceMap, written: str) -> Resource[JSON] | None:
    """As kubectl reads a resource: plural, singular, kind or short name, with or without its group."""
    word, _, group = written.partition(".")
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
    about = event.involved_object
    return (about.kind, about.name, about.namespace) == (ref.resource.kind, ref.name, ref.namespace)
