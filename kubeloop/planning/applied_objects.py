"""Manifests that are applied to the copy of a cluster, as `kubectl apply` would do it.

A recording lacks environment, commands and annotations. What is applied to the copy of one is therefore projected in
the same way, after the API server of the copy has validated the manifest as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.client.discovery import ResourceMap
from kubeloop.kube.errors import ApiError
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource
from kubeloop.planning.cluster_copy import RunningCluster
from kubeloop.process.manifests import Manifest, apply
from kubeloop.recording.projection import LAST_APPLIED, OMITTED, project

_FIRST: Final = {"CustomResourceDefinition": 0, "Namespace": 1}
_OWNED: Final = {"fieldManager": "kubeloop", "force": "true"}
_NEVER_APPLIED: Final = frozenset(
    {"status", "metadata.uid", "metadata.resourceVersion", "metadata.managedFields", "metadata.creationTimestamp"}
)


async def apply_manifests(
    cluster: RunningCluster, manifests: Sequence[Manifest], *, default_namespace: str, is_projected: bool
) -> list[tuple[Resource[Any], str, str]]:
    """Apply the manifests in kubectl's order. Returns resource, namespace and name of each.

    is_projected: the objects of the cluster are those of a recording. Raises UserError for a manifest that the API
    server refuses, with file and document.
    """
    applied = []
    resources = await ResourceMap.discover(cluster.client)
    for original in sorted(manifests, key=lambda manifest: _FIRST.get(manifest.kind, 2)):
        manifest = _without_server_fields(original)
        if is_projected:
            await apply(
                cluster.client, [manifest], default_namespace=default_namespace, resources=resources, dry_run=True
            )
            manifest = Manifest(original.source, project(manifest.kind, manifest.body))
        resource = resources.find(manifest.api_version, manifest.kind)
        if resource is None:  # of a definition that was applied before
            resources = await ResourceMap.discover(cluster.client)
            resource = resources.find(manifest.api_version, manifest.kind)
        namespace = str(manifest.body["metadata"].get("namespace") or default_namespace)
        if resource is not None and manifest.name:
            await _own_fields(cluster, resource, manifest, namespace if resource.namespaced else "")
        ((title, _),) = await apply(
            cluster.client, [manifest], default_namespace=default_namespace, resources=resources, remain=True
        )
        if resource is not None:
            applied.append((resource, namespace if resource.namespaced else "", title.partition("/")[2]))
    return applied


async def _own_fields(cluster: RunningCluster, resource: Resource[Any], manifest: Manifest, namespace: str) -> None:
    """Make this program the manager of the fields that were applied before: those that the manifest lacks are removed.

    They are those of kubectl's annotation; without it, only the variables in the place of what a recording lacks.
    """
    client = cluster.client
    try:
        stored = await client.get_raw(resource, manifest.name, namespace)
    except ApiError:
        return  # it does not exist yet
    assert isinstance(stored, dict)
    text = (stored["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    try:
        before = (
            present_fields(msgspec.json.decode(text, type=dict[str, Any]), stored) if text else _placeholders(stored)
        )
        if before:
            owned = await client.patch(resource, manifest.name, before, PatchType.APPLY, namespace, query=_OWNED)
            cluster.store.update(resource, _without_other_managers(owned))
    except (msgspec.DecodeError, ApiError):
        return  # kubectl would not use it either


def _without_other_managers(obj: JSON) -> JSON:
    """Return the object without managers of the fields that existed before the first apply: they would stay."""
    managed = [entry for entry in obj["metadata"].get("managedFields") or () if entry.get("operation") == "Apply"]
    return {**obj, "metadata": {**obj["metadata"], "managedFields": managed}}


def present_fields(applied: Any, stored: Any) -> Any:
    """Return the fields of `applied` that the stored object has, with its values."""
    if isinstance(applied, dict) and isinstance(stored, dict):
        return {name: present_fields(value, stored[name]) for name, value in applied.items() if name in stored}
    if isinstance(applied, list) and isinstance(stored, list) and all(_is_named(item) for item in (*applied, *stored)):
        by_name = {item["name"]: item for item in stored}
        return [present_fields(item, by_name[item["name"]]) for item in applied if item["name"] in by_name]
    return stored


def _is_named(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("name"), str)


def _placeholders(stored: JSON) -> JSON:
    """Return the part of a workload that stands for what a recording lacks, {} if there is none."""
    containers = []
    spec = ((stored.get("spec") or {}).get("template") or {}).get("spec") or {}
    for container in spec.get("containers") or ():
        variables = [variable for variable in container.get("env") or () if variable.get("name") == OMITTED]
        if variables:
            containers.append({"name": container["name"], "env": variables})
    if not containers:
        return {}
    metadata = {name: stored["metadata"][name] for name in ("name", "namespace") if name in stored["metadata"]}
    template = {"spec": {"containers": containers}}
    return {
        "apiVersion": stored["apiVersion"],
        "kind": stored["kind"],
        "metadata": metadata,
        "spec": {"template": template},
    }


def _without_server_fields(manifest: Manifest) -> Manifest:
    """Return the manifest without the fields that an API server sets, as of `kubectl get -o yaml`."""
    metadata = {
        name: value for name, value in manifest.body["metadata"].items() if f"metadata.{name}" not in _NEVER_APPLIED
    }
    body = {name: value for name, value in manifest.body.items() if name not in _NEVER_APPLIED}
    return Manifest(manifest.source, {**body, "metadata": metadata})
