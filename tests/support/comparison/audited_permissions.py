"""Permissions that a user used, read from the audit log of kube-apiserver, and permissions that a ClusterRole grants.

A Permission is (API group, resource with its subresource, verb), as in RBAC rules.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

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
