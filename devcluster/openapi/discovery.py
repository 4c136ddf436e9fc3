"""What the server says it serves: group and version lists, resource lists, aggregated discovery and /version.

Everything comes from the registry and never changes, so each document is built once; callers must not change it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import JSON_TYPE
from kubeloop.devcluster.api.served_resources import VERSIONS, Served, api_groups, group_versions, of_version
from kubeloop.devcluster.api.subresources import subresource_kind, subresource_verbs
from kubeloop.devcluster.serializer.negotiation import Clause, as_it_is, chosen, passes
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource

_AGGREGATED_FORM = ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList")
_AGGREGATED = ";g={};v={};as={}".format(*_AGGREGATED_FORM)


def group_version_name(group: str, version: str) -> str:
    """As in manifests: "apps/v1", or "v1" for the core group."""
    return f"{group}/{version}" if group else version


# --- one document per group version -----------------------------------------------------------------------------------


def api_resource(each: Served, verbs: Sequence[str], storage_hash: str) -> JSON:
    """The entry of a resource; storage_hash: "" where nothing is stored."""
    resource = each.resource
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
    """By what else a resource goes, where there is anything."""
    named = {"shortNames": list(resource.short_names), "categories": list(resource.categories)}
    return {name: value for name, value in named.items() if value}


def storage_version_hash(resource: Resource[Any]) -> str:
    """Of the version in which objects are kept. Source: apiserver endpoints/discovery/storageversionhash.go."""
    text = f"{resource.group}/{resource.version}/{resource.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def api_subresource(each: Served, subresource: str) -> JSON:
    """The entry of a subresource."""
    group, version, kind = subresource_kind(each, subresource)
    result: JSON = {
        "name": f"{each.resource.plural}/{subresource}",
        "singularName": "",
        "namespaced": each.resource.namespaced,
    }
    if group:
        result |= {"group": group, "version": version}
    return result | {"kind": kind, "verbs": list(subresource_verbs(subresource))}


def _resource_list(group: str, version: str) -> JSON:
    entries: list[JSON] = []
    for each in of_version(group, version):
        storage_hash = storage_version_hash(each.stored_as or each.resource) if each.stored else ""
        entries.append(api_resource(each, each.verbs, storage_hash))
        entries.extend(api_subresource(each, name) for name in sorted(each.resource.subresources))
    document: JSON = {"kind": "APIResourceList"}
    if group:  # the core group's list goes without, for the sake of the oldest clients
        document["apiVersion"] = "v1"
    return document | {"groupVersion": group_version_name(group, version), "resources": entries}


def api_group(name: str, versions: Iterable[str]) -> JSON:
    """The entry of a group; its preferred version comes first."""
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


# --- aggregated: everything at once -----------------------------------------------------------------------------------


def aggregated_resource(
    each: Served, verbs: Sequence[str], subresources: Iterable[str], group: str = "", version: str = ""
) -> JSON:
    """The entry of a resource. group, version: of its kind, which those of Kubernetes' own resources do not say."""
    resource = each.resource
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
        own_group, own_version, kind = subresource_kind(each, name)
        told = {"group": own_group or group, "version": own_version or version, "kind": kind}
        entries.append({"subresource": name, "responseKind": told, "verbs": list(subresource_verbs(name))})
    return result | ({"subresources": entries} if entries else {})


def aggregated_version(version: str, resources: list[JSON]) -> JSON:
    """What one group serves in one version."""
    return {"version": version, "resources": resources, "freshness": "Current"}


def _aggregated(groups: list[str]) -> JSON:
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
                            aggregated_resource(each, each.verbs, sorted(each.resource.subresources))
                            for each in of_version(group, version)
                        ],
                    )
                    for version in VERSIONS[group]
                ],
            }
            for group in groups
        ],
    }


def _wants_aggregated(media_type: str, clause: Clause) -> bool:
    del media_type
    return clause.conversion == _AGGREGATED_FORM


def asked_form(path: str, accept: str) -> str:
    """The content type of what an Accept header wants most at a discovery path. Raises StatusError 406.

    /apis and what is right below it are answered by the aggregator; the others are behind go-restful. At /api and /apis
    the aggregated form goes before all others. Source: apiserver endpoints/discovery, kube-aggregator pkg/apiserver.
    """
    root = path.strip("/")
    if root == "version":
        if not passes(accept, (JSON_TYPE,)):
            raise errors.only_acceptable(JSON_TYPE)
        return JSON_TYPE
    if (root.count("/") > 1 or not root.startswith("apis")) and not passes(accept):
        raise errors.not_acceptable(streams=False)
    if (
        path.lstrip("/") in ("api", "api/", "apis")
        and accept
        and (found := chosen(accept, _wants_aggregated)) is not None
    ):
        return found[0] + _AGGREGATED
    if (found := chosen(accept, as_it_is)) is None:
        raise errors.form_not_acceptable()
    return found[0]


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
    "gitVersion": "v1.36.0+kubeloop",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
"""The Kubernetes version whose behaviour this server has; `gitVersion` tells it from a real one."""


@cache
def _documents() -> dict[str, JSON]:
    """Every document by its path without the outer slashes."""
    documents: dict[str, JSON] = {
        "version": VERSION,
        "api": {"kind": "APIVersions", "versions": list(VERSIONS[""]), "serverAddressByClientCIDRs": []},
        "apis": {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [api_group(name, VERSIONS[name]) for name in api_groups()],
        },
    }
    for name in api_groups():
        documents[f"apis/{name}"] = {"kind": "APIGroup", "apiVersion": "v1", **api_group(name, VERSIONS[name])}
    for group, version in group_versions():
        documents[f"apis/{group}/{version}" if group else f"api/{version}"] = _resource_list(group, version)
    return documents


@cache
def _aggregated_document(root: str) -> JSON:
    return _aggregated([""] if root == "api" else api_groups())


def discovery(path: str, accept: str) -> tuple[JSON, str] | None:
    """The document at a discovery path and its content type; None if the path is none of them.

    Aggregated discovery is answered at /api and /apis to those whose Accept header names it. Raises StatusError 406.
    """
    root = path.strip("/")
    document = _documents().get(root)
    if document is None:
        return None
    form = asked_form(path, accept)
    return (_aggregated_document(root) if is_aggregated(form) else document), form
