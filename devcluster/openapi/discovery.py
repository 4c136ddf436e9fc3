"""Discovery documents: group and version lists, resource lists, aggregated discovery and /version.

They follow from the registry of served resources and never change: each document is built once for each set of gates
(see served_resources.api_gates); callers must not change it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import JSON_TYPE
from kubeloop.devcluster.api.served_resources import (
    NO_API_GATES,
    VERSIONS,
    ServedResource,
    api_groups,
    group_versions,
    resources_of_version,
    versions_of_group,
)
from kubeloop.devcluster.api.subresources import subresource_kind, subresource_verbs
from kubeloop.devcluster.serializer.negotiation import (
    AcceptClause,
    matches_accept,
    negotiate_media_type,
    without_conversion,
)
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource

_AGGREGATED_FORM = ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList")
_AGGREGATED = ";g={};v={};as={}".format(*_AGGREGATED_FORM)


def group_version_name(group: str, version: str) -> str:
    """Return the apiVersion: "apps/v1", or "v1" for the core group."""
    return f"{group}/{version}" if group else version


# --- one document per group version -----------------------------------------------------------------------------------


def api_resource(served: ServedResource, verbs: Sequence[str], storage_hash: str) -> JSON:
    """Return the APIResource of a resource; storage_hash: "" if nothing is stored."""
    resource = served.resource
    result: JSON = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(verbs),
        **_names(resource),
    }
    return result | ({"storageVersionHash": storage_hash} if storage_hash else {})


def _names(resource: Resource[Any]) -> JSON:
    """Return short names and categories, if any."""
    named = {"shortNames": list(resource.short_names), "categories": list(resource.categories)}
    return {name: value for name, value in named.items() if value}


_STORAGE_VERSIONS = {"devicetaintrules.resource.k8s.io": "v1alpha3"}
"""Versions of Kubernetes' storage that this server does not serve."""


def storage_version_hash(resource: Resource[Any]) -> str:
    """Return the hash of the storage version. Source: apiserver endpoints/discovery/storageversionhash.go."""
    version = _STORAGE_VERSIONS.get(resource.group_resource, resource.version)
    text = f"{resource.group}/{version}/{resource.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def api_subresource(served: ServedResource, subresource: str) -> JSON:
    """Return the APIResource of a subresource."""
    group, version, kind = subresource_kind(served, subresource)
    result: JSON = {
        "name": f"{served.resource.plural}/{subresource}",
        "singularName": "",
        "namespaced": served.resource.namespaced,
    }
    if group:
        result |= {"group": group, "version": version}
    return result | {"kind": kind, "verbs": list(subresource_verbs(subresource))}


def _resource_list(group: str, version: str, gates: frozenset[str]) -> JSON:
    entries: list[JSON] = []
    for served in resources_of_version(group, version, gates):
        storage_hash = storage_version_hash(served.storage_resource or served.resource) if served.is_stored else ""
        entries.append(api_resource(served, served.verbs, storage_hash))
        entries.extend(api_subresource(served, name) for name in sorted(served.resource.subresources))
    document: JSON = {"kind": "APIResourceList"}
    if group:  # the core group's list has no apiVersion, for compatibility with the oldest clients
        document["apiVersion"] = "v1"
    return document | {"groupVersion": group_version_name(group, version), "resources": entries}


def api_group(name: str, versions: Iterable[str]) -> JSON:
    """Return the APIGroup entry of a group; its preferred version comes first."""
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


# --- aggregated discovery ---------------------------------------------------------------------------------------------


def aggregated_resource(
    served: ServedResource, verbs: Sequence[str], subresources: Iterable[str], group: str = "", version: str = ""
) -> JSON:
    """Return the APIResourceDiscovery entry. group, version: of its kind; "" for Kubernetes' own resources."""
    resource = served.resource
    result: JSON = {
        "resource": resource.plural,
        "responseKind": {"group": group, "version": version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(verbs),
        **_names(resource),
    }
    entries = []
    for name in subresources:
        own_group, own_version, kind = subresource_kind(served, name)
        response_kind = {"group": own_group or group, "version": own_version or version, "kind": kind}
        entries.append({"subresource": name, "responseKind": response_kind, "verbs": list(subresource_verbs(name))})
    return result | ({"subresources": entries} if entries else {})


def aggregated_version(version: str, resources: list[JSON]) -> JSON:
    """Return the APIVersionDiscovery entry of one version of a group."""
    return {"version": version, "resources": resources, "freshness": "Current"}


def _aggregated(groups: list[str], gates: frozenset[str]) -> JSON:
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": group} if group else {},
                "versions": [
                    aggregated_version(
                        version,
                        [
                            aggregated_resource(served, served.verbs, sorted(served.resource.subresources))
                            for served in resources_of_version(group, version, gates)
                        ],
                    )
                    for version in versions_of_group(group, gates)
                ],
            }
            for group in groups
        ],
    }


def _is_aggregated_form(media_type: str, clause: AcceptClause) -> bool:
    del media_type
    return clause.conversion == _AGGREGATED_FORM


def discovery_content_type(path: str, accept: str) -> str:
    """Return the content type that an Accept header selects at a discovery path. Raises StatusError 406.

    /apis and the paths directly below it are served by the aggregator, the others by go-restful. At /api and /apis
    aggregated discovery has precedence. Source: apiserver endpoints/discovery, kube-aggregator pkg/apiserver.
    """
    root = path.strip("/")
    if root == "version":
        if not matches_accept(accept, (JSON_TYPE,)):
            raise errors.only_acceptable(JSON_TYPE)
        return JSON_TYPE
    if (root.count("/") > 1 or not root.startswith("apis")) and not matches_accept(accept):
        raise errors.not_acceptable(streams=False)
    if (
        path.lstrip("/") in ("api", "api/", "apis")
        and accept
        and (negotiated := negotiate_media_type(accept, _is_aggregated_form)) is not None
    ):
        return negotiated[0] + _AGGREGATED
    if (negotiated := negotiate_media_type(accept, without_conversion)) is None:
        raise errors.form_not_acceptable()
    return negotiated[0]


def is_aggregated(content_type: str) -> bool:
    return content_type.endswith(_AGGREGATED)


# --- paths ------------------------------------------------------------------------------------------------------------

VERSION: JSON = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2+kubeloop",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
"""The Kubernetes version that this server implements; `gitVersion` distinguishes it from a real kube-apiserver."""


@cache
def _documents(gates: frozenset[str]) -> dict[str, JSON]:
    """Return every document by its path without leading and trailing slash."""
    documents: dict[str, JSON] = {
        "version": VERSION,
        "api": {"kind": "APIVersions", "versions": list(VERSIONS[""]), "serverAddressByClientCIDRs": []},
        "apis": {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [api_group(name, versions_of_group(name, gates)) for name in api_groups(gates)],
        },
    }
    for name in api_groups(gates):
        group_entry = api_group(name, versions_of_group(name, gates))
        documents[f"apis/{name}"] = {"kind": "APIGroup", "apiVersion": "v1", **group_entry}
    for group, version in group_versions(gates):
        documents[f"apis/{group}/{version}" if group else f"api/{version}"] = _resource_list(group, version, gates)
    return documents


@cache
def _aggregated_document(root: str, gates: frozenset[str]) -> JSON:
    return _aggregated([""] if root == "api" else api_groups(gates), gates)


def get_discovery_document(path: str, accept: str, gates: frozenset[str] = NO_API_GATES) -> tuple[JSON, str] | None:
    """Return the document at a discovery path and its content type, or None for any other path.

    At /api and /apis it is the aggregated document if the Accept header selects that. gates: see
    served_resources.api_gates(). Raises StatusError 406.
    """
    root = path.strip("/")
    document = _documents(gates).get(root)
    if document is None:
        return None
    form = discovery_content_type(path, accept)
    return (_aggregated_document(root, gates) if is_aggregated(form) else document), form
