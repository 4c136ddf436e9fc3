"""Discovery with the groups of aggregated API servers. Pure functions of JSON.

Source: kube-aggregator pkg/apiserver/handler_discovery.go, handler_apis.go of v1.36.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kubeloop.devcluster.openapi.discovery import api_group
from kubeloop.kube.json_object import JSON

GroupVersion = tuple[str, str]

_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")
_STABILITY = {None: 2, "beta": 1, "alpha": 0}


def sorted_versions(services: Iterable[JSON], group: str) -> list[str]:
    """Return the versions of a group by the priority of their APIServices, the preferred one first."""
    specs = [service["spec"] for service in services if service["spec"].get("group", "") == group]
    specs.sort(key=lambda spec: (spec["versionPriority"], _version_rank(spec["version"])), reverse=True)
    return [spec["version"] for spec in specs]


def _version_rank(version: str) -> tuple[int, int, int]:
    """Return the place of a version: v2 before v1 before v1beta2. Source: apimachinery pkg/version/helpers.go."""
    match = _VERSION.fullmatch(version)
    return (_STABILITY[match[2]], int(match[1]), int(match[3] or 0)) if match else (-1, 0, 0)


def with_groups(document: JSON, versions: Mapping[str, list[str]]) -> JSON:
    """Return the list of groups with those of `versions`, sorted versions by group, which replace present ones."""
    present = {entry["name"] for entry in document["groups"]}
    groups = [
        api_group(entry["name"], versions[entry["name"]]) if entry["name"] in versions else entry
        for entry in document["groups"]
    ]
    added = [api_group(group, listed) for group, listed in versions.items() if group not in present]
    return {**document, "groups": [*groups, *added]}


def with_aggregated(document: JSON, versions: Mapping[str, list[str]], remote: Mapping[GroupVersion, JSON]) -> JSON:
    """Return aggregated discovery with the versions of `remote`, by group and version."""
    items = {item["metadata"].get("name", ""): item for item in document["items"]}
    for group, listed in versions.items():
        item = items.get(group) or {"metadata": {"name": group}, "versions": []}
        entries = {entry["version"]: entry for entry in item["versions"]}
        entries |= {version: entry for (name, version), entry in remote.items() if name == group}
        items[group] = {**item, "versions": [entries[version] for version in listed if version in entries]}
    return {**document, "items": [*items.values()]}


def stale_version(version: str) -> JSON:
    """Return the entry of a version whose API server is not reachable."""
    return {"version": version, "freshness": "Stale"}


def version_from_list(version: str, resource_list: JSON) -> JSON:
    """Return the entry of a version, from the APIResourceList of an API server without aggregated discovery."""
    resources: dict[str, JSON] = {}
    for entry in resource_list.get("resources") or ():
        name, _, subresource = entry["name"].partition("/")
        kind = {
            "group": entry.get("group", ""),
            "version": entry.get("version", ""),
            "kind": entry.get("kind", ""),
        }
        if not subresource:
            resources[name] = {
                "resource": name,
                "responseKind": kind,
                "scope": "Namespaced" if entry.get("namespaced") else "Cluster",
                "singularResource": entry.get("singularName", ""),
                "verbs": entry.get("verbs") or [],
                **{field: entry[field] for field in ("shortNames", "categories") if entry.get(field)},
            }
        elif name in resources:
            listed = {"subresource": subresource, "responseKind": kind, "verbs": entry.get("verbs") or []}
            resources[name].setdefault("subresources", []).append(listed)
    return {"version": version, "resources": [*resources.values()], "freshness": "Current"}
