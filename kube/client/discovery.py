"""Discovery: the resources that a server serves."""

from __future__ import annotations

from typing import Any

import msgspec

from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.objects.resources import Resource
from kubeloop.kube.user_error import closest_names

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


class ResourceMap:
    """The resources of one server, by apiVersion and kind; objects are plain JSON."""

    def __init__(self, resources: list[Resource[dict[str, Any]]], verbs: dict[str, frozenset[str]]) -> None:
        self.resources = resources
        self._verbs = verbs
        self._by_kind = {(resource.api_version, resource.kind): resource for resource in resources}

    @classmethod
    async def discover(cls, client: ApiClient) -> ResourceMap:
        """Query the server, by aggregated discovery (v1.30 and later) or group by group.

        Raises what `ApiClient.raw` raises.
        """
        resources: list[Resource[dict[str, Any]]] = []
        verbs: dict[str, frozenset[str]] = {}
        for root in ("/api", "/apis"):
            response = await client.raw("GET", root, headers={"accept": _AGGREGATED})
            document = msgspec.json.decode(response.body)
            if document.get("kind") == "APIGroupDiscoveryList":
                resources_with_verbs = _parse_aggregated(document)
            else:
                resources_with_verbs = await _discover_groups(client, document)
            for resource, resource_verbs in resources_with_verbs:
                resources.append(resource)
                verbs[f"{resource.api_version}/{resource.plural}"] = resource_verbs
        return cls(resources, verbs)

    def find(self, api_version: str, kind: str) -> Resource[dict[str, Any]] | None:
        return self._by_kind.get((api_version, kind))

    def verbs(self, resource: Resource[Any]) -> frozenset[str]:
        """Verbs of the collection and its objects: "create", "list", "deletecollection", ..."""
        return self._verbs[f"{resource.api_version}/{resource.plural}"]

    def suggestion(self, kind: str) -> str:
        """Return the closest served kinds as a sentence; "" if none is similar."""
        same = sorted(version for version, served in self._by_kind if served == kind)
        if same:
            return f"{kind} is served as {' and '.join(same)}"
        near = closest_names(kind, {served for _, served in self._by_kind})
        return f"did you mean {near[0]}?" if near else ""


ResourcesWithVerbs = list[tuple[Resource[dict[str, Any]], frozenset[str]]]


def _parse_aggregated(document: dict[str, Any]) -> ResourcesWithVerbs:
    entries_found: ResourcesWithVerbs = []
    for group in document.get("items", []):
        for version in group.get("versions", []):
            for entry in version.get("resources", []):
                kind = entry.get("responseKind", {}).get("kind", "")
                if not kind:
                    continue
                resource: Resource[dict[str, Any]] = Resource(
                    group=group["metadata"].get("name", ""),
                    version=version["version"],
                    kind=kind,
                    plural=entry["resource"],
                    namespaced=entry.get("scope") == "Namespaced",
                    type=dict,
                    singular=entry.get("singularResource") or kind.lower(),
                    subresources=tuple(sub["subresource"] for sub in entry.get("subresources", [])),
                )
                entries_found.append((resource, frozenset(entry.get("verbs", ()))))
    return entries_found


async def _discover_groups(client: ApiClient, document: dict[str, Any]) -> ResourcesWithVerbs:
    if document.get("kind") == "APIVersions":
        group_versions = [("", version, f"/api/{version}") for version in document.get("versions", [])]
    else:
        group_versions = [
            (group["name"], version["version"], f"/apis/{version['groupVersion']}")
            for group in document.get("groups", [])
            for version in group.get("versions", [])
        ]
    entries_found: ResourcesWithVerbs = []
    for group, version, path in group_versions:
        listing = msgspec.json.decode((await client.raw("GET", path)).body)
        entries = listing.get("resources", [])
        subresources: dict[str, list[str]] = {}
        for entry in entries:
            plural, _, subresource = entry["name"].partition("/")
            subresources.setdefault(plural, []).extend([subresource] if subresource else [])
        for entry in entries:
            if "/" in entry["name"]:
                continue
            resource: Resource[dict[str, Any]] = Resource(
                group=group,
                version=version,
                kind=entry["kind"],
                plural=entry["name"],
                namespaced=entry["namespaced"],
                type=dict,
                singular=entry.get("singularName") or entry["kind"].lower(),
                subresources=tuple(subresources[entry["name"]]),
            )
            entries_found.append((resource, frozenset(entry.get("verbs", ()))))
    return entries_found
