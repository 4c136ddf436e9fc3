"""What a new cluster contains: the same objects as from a kube-apiserver, of all kinds, field by field.

The real one decides by RBAC after AlwaysAllow, so that it has the roles that users of a cluster look for.
"""

from __future__ import annotations

import json
import time
from typing import Any

from kubeloop.devcluster.server.listener import machine_identity
from support.apiserver_process import TOKEN, apiserver_command, running_apiserver_sync
from support.differential import ApiServer
from support.real_apiserver import needs_binaries, real_apiserver

JSON = dict[str, Any]
Key = tuple[str, str, str]
"""Path of the resource, namespace and name."""

_WAIT_SECONDS = 20.0
_WHAT_HAPPENS = ("events", "componentstatuses")
_ANY = ("uid", "resourceVersion", "creationTimestamp", "time", "lastTransitionTime", "renewTime")


def contents(server: ApiServer, port: int) -> dict[Key, Any]:
    """Every object, without what is another one's each time."""
    found: dict[Key, Any] = {}
    groups = read(server, "/apis")["groups"]
    for base in ["/api/v1", *(f"/apis/{each['groupVersion']}" for group in groups for each in group["versions"])]:
        for resource in read(server, base)["resources"]:
            if "list" not in resource["verbs"] or resource["name"] in _WHAT_HAPPENS:
                continue
            path = f"{base}/{resource['name']}"
            for obj in read(server, path)["items"] or ():
                metadata = obj["metadata"]
                if "openshift" not in metadata["name"]:  # builds of kube-apiserver that add something
                    found[path, metadata.get("namespace", ""), metadata["name"]] = plain(obj, port)
    return found


def read(server: ApiServer, path: str) -> JSON:
    answer = server.ask("GET", path)
    assert answer.status == 200, (path, answer)
    content: JSON = answer.content
    return content


def plain(value: Any, port: int) -> Any:
    if isinstance(value, dict):
        return {name: "*" if name in _ANY else plain(each, port) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each, port) for each in value]
    text = json.dumps(value).replace(str(port), "PORT")
    return text.partition("_")[0] if text.startswith('"apiserver-') else text  # the rest is the process's


def test_a_new_cluster_contains_what_kube_apiserver_makes(tmp_path):
    needs_binaries()
    flags = {
        "authorization-mode": "AlwaysAllow,RBAC",
        "client-ca-file": "",  # ours takes no certificates, and publishes no authority for them
        "advertise-address": machine_identity(1).address,
        "endpoint-reconciler-type": "lease",
    }
    with (
        real_apiserver(tmp_path / "real", flags=flags) as kubernetes,
        running_apiserver_sync(apiserver_command(tmp_path)) as (url, _),
    ):
        real, ours = ApiServer.from_kubeconfig(kubernetes.kubeconfig), ApiServer(url, TOKEN)
        got = contents(ours, int(url.rpartition(":")[2]))
        until = time.monotonic() + _WAIT_SECONDS  # its controllers take their time
        while (wanted := contents(real, kubernetes.port)) != got and time.monotonic() < until:
            time.sleep(0.5)
        real.close()
        ours.close()
    assert got.keys() == wanted.keys()
    assert {key: got[key] for key in got if got[key] != wanted[key]} == {
        key: wanted[key] for key in got if got[key] != wanted[key]
    }
