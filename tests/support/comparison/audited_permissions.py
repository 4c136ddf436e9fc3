"""Permissions that a user used, read from the audit log of kube-apiserver, and permissions that a ClusterRole grants.

A Permission is (API group, resource with its subresource, verb), as in RBAC rules.
"""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kubeloop.process.endpoint.explain_pages import EXPLAIN_PATH
from kubeloop.process.endpoint.object_pages import OBJECTS_PATH
from kubeloop.process.workload_progress import WORKLOAD_PROGRESS

Permission = tuple[str, str, str]

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


def granted_permissions(rules: Iterable[dict[str, Any]]) -> set[Permission]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def audited_permissions(audit_log: Path, user: str) -> tuple[set[Permission], set[Permission]]:
    """Return the permissions of `user`'s requests: those allowed and those forbidden."""
    allowed: set[Permission] = set()
    forbidden: set[Permission] = set()
    for line in audit_log.read_text().splitlines():
        event = json.loads(line)
        reference = event.get("objectRef")
        if event["user"].get("username") != user or reference is None or "resource" not in reference:
            continue
        resource = reference["resource"] + (f"/{reference['subresource']}" if reference.get("subresource") else "")
        permission = (reference.get("apiGroup", ""), resource, event["verb"])
        refused = event.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid"
        (forbidden if refused else allowed).add(permission)
    return allowed, forbidden


def read_pages(url: str, namespace: str, pod: str, node: str) -> None:
    """Request all that the trace page shows of a pod, of a workload of each kind, and of nodes.

    Objects that do not exist and missing permissions are ignored: the audit log has the requests.
    """
    of_pod = f"namespace={namespace}&pod={pod}"
    owners = [f"{resource.singular}/none" for resource in WORKLOAD_PROGRESS] + ["replicaset/none"]
    for page in (
        f"{EXPLAIN_PATH}?{of_pod}&scores=true",
        *(f"{OBJECTS_PATH}/{name}?{of_pod}" for name in ("pod", "logs")),
        *(f"{OBJECTS_PATH}/owner?namespace={namespace}&owner={owner}" for owner in owners),
        *(f"{OBJECTS_PATH}/nodes?{query}" for query in ("", f"node={node}")),
    ):
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(url + page, timeout=60).close()
