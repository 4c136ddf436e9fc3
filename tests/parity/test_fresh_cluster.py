"""Objects of a new cluster: the same as those of kube-apiserver, of all kinds, field by field.

kube-apiserver runs with the authorization modes AlwaysAllow and RBAC, so that it creates the default roles.
"""

from __future__ import annotations

import json
import time
from typing import Any

from kubeloop.devcluster.server.listener import machine_identity
from support.apiserver.http_api import HttpApi, server_pair

JSON = dict[str, Any]
Key = tuple[str, str, str]
"""Path of the resource, namespace and name."""

_WAIT_SECONDS = 20.0
_EXCLUDED_RESOURCES = ("events", "componentstatuses")
_GENERATED_FIELDS = ("uid", "resourceVersion", "creationTimestamp", "time", "lastTransitionTime", "renewTime")


def all_objects(server: HttpApi, port: int) -> dict[Key, Any]:
    """Return every object without generated values."""
    objects: dict[Key, Any] = {}
    groups = read(server, "/apis")["groups"]
    versions = [f"/apis/{version['groupVersion']}" for group in groups for version in group["versions"]]
    for base in ["/api/v1", *versions]:
        for resource in read(server, base)["resources"]:
            if "list" not in resource["verbs"] or resource["name"] in _EXCLUDED_RESOURCES:
                continue
            path = f"{base}/{resource['name']}"
            for obj in read(server, path)["items"] or ():
                metadata = obj["metadata"]
                if "openshift" not in metadata["name"]:  # from patched builds of kube-apiserver
                    objects[path, metadata.get("namespace", ""), metadata["name"]] = comparable(obj, port)
    return objects


def read(server: HttpApi, path: str) -> JSON:
    response = server.request("GET", path)
    assert response.status == 200, (path, response)
    content: JSON = response.content
    return content


def comparable(value: Any, port: int) -> Any:
    if isinstance(value, dict):
        return {name: "*" if name in _GENERATED_FIELDS else comparable(inner, port) for name, inner in value.items()}
    if isinstance(value, list):
        return [comparable(item, port) for item in value]
    if isinstance(value, str) and value.startswith("-----BEGIN CERTIFICATE-----"):
        return "CERTIFICATE"  # each server has its own authority
    text = json.dumps(value).replace(str(port), "PORT")
    return text.partition("_")[0] if text.startswith('"apiserver-') else text  # the suffix identifies the process


def test_new_cluster_has_the_objects_of_kube_apiserver(tmp_path):
    flags = {
        "authorization-mode": "AlwaysAllow,RBAC",
        "advertise-address": machine_identity(1).address,
        "endpoint-reconciler-type": "lease",
    }
    with server_pair(tmp_path, flags) as servers:
        ours = all_objects(servers.ours, int(servers.ours_url.rpartition(":")[2]))
        deadline = time.monotonic() + _WAIT_SECONDS  # kube-apiserver's controllers create objects asynchronously
        while (real := all_objects(servers.real, servers.kubernetes.port)) != ours and time.monotonic() < deadline:
            time.sleep(0.5)
    assert ours.keys() == real.keys()
    different = [key for key in ours if ours[key] != real[key]]
    assert {key: ours[key] for key in different} == {key: real[key] for key in different}
