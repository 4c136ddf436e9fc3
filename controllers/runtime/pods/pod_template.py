"""The JSON of a Pod that a controller creates from a template.

Pure functions. Source: GetPodFromTemplate in pkg/controller/controller_utils.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kubeloop.kube.objects.api_types import JSONValue, Object
from kubeloop.kube.objects.object_fields import controller_reference

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_MAX_NAME_LENGTH = 253


def generate_name(owner_name: str) -> str:
    """Return the generateName prefix of an owner's Pods: with a dash, unless that gives no valid Pod name."""
    prefix = f"{owner_name}-"
    masked = f"{prefix[:-2]}a"  # maskTrailingDash of apimachinery, used to validate generateName
    if len(masked) <= _MAX_NAME_LENGTH and _SUBDOMAIN.fullmatch(masked):
        return prefix
    return owner_name


def pod_from_template(owner: Object, template: Mapping[str, JSONValue]) -> dict[str, JSONValue]:
    """Return the JSON of a Pod of `owner`, to be created in its namespace. Shares values with the template."""
    template_metadata = template.get("metadata") or {}
    metadata: dict[str, JSONValue] = {
        "generateName": generate_name(owner.metadata.name),
        "ownerReferences": [controller_reference(owner)],
    }
    for name in ("labels", "annotations", "finalizers"):
        if template_metadata.get(name):
            metadata[name] = template_metadata[name]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec") or {}}
