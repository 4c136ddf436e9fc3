"""Which kinds a server serves, asked from the server itself."""

from __future__ import annotations

import difflib
from typing import Any

import msgspec

from kubeloop.kube.client.api_client import Client
from kubeloop.kube.objects.resources import Resource

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


class ResourceMap:
    """The resources of one server, by apiVersion and kind; objects are plain JSON."""

    def __init__(self, resources: list[Resource[dict[str, Any]]], verbs: dict[str, frozenset[str]]) -> None:
        self.resources = resources
        self._verbs = verbs
        self._by_kind = {(each.api_version, each.kind): each for each in resources}

    @classmethod
    async def discover(cls, client: Client) -> ResourceMap:
        """Ask the server, by aggregated discovery (v1.30 and later) or group by group.

        Raises what `Client.raw` raises.
        """
        resources: list[Resource[dict[str, Any]]] = []
        verbs: dict[str, frozenset[str]] = {}
        for root in ("/api", "/apis"):
            response = await client.raw("GET", root, headers={"accept": _AGGREGATED})
            document = msgspec.json.decode(response.body)
            if document.get("kind") == "APIGroupDiscoveryList":
                found = _aggregated(document)
            else:
                found = await _one_by_one(client, document)
            for resource, its_verbs in found:
                resources.append(resource)
                verbs[f"{resource.api_version}/{resource.plural}"] = its_verbs
        return cls(resources, verbs)

    def find(self, api_version: str, kind: str) -> Resource[dict[str, Any]] | None:
        return self._by_kind.get((api_version, kind))

    def verbs(self, resource: Resource[Any]) -> frozenset[str]:
        """What may be done with the collection and its objects: "create", "list", "deletecollection", ..."""
        return self._verbs[f"{resource.api_version}/{resource.plural}"]

    def suggestion(self, kind: str) -> str:
        """The nearest kinds that are served, as a sentence; "" if none is near."""
        same = sorted(version for version, served in self._by_kind if served == kind)
        if same:
            return f"{kind} is served as {' and '.join(same)}"
        near = difflib.get_close_matches(kind, {served for _, served in self._by_kind}, n=1)
        return f"did you mean {near[0]}?" if near else ""


Found = list[tuple[Resource[dict[str, Any]], frozenset[str]]]


def _aggregated(document: dict[str, Any]) -> Found:
    found: Found = []
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
                found.append((resource, frozenset(entry.get("verbs", ()))))
    return found


async def _one_by_one(client: Client, document: dict[str, Any]) -> Found:
    if document.get("kind") == "APIVersions":
        group_versions = [("", version, f"/api/{version}") for version in document.get("versions", [])]
    else:
        group_versions = [
            (group["name"], version["version"], f"/apis/{version['groupVersion']}")
            for group in document.get("groups", [])
            for version in group.get("versions", [])
        ]
    found: Found = []
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
            found.append((resource, frozenset(entry.get("verbs", ()))))
    return found
