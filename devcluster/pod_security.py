"""PodSecurity: the levels that labels of a namespace ask of its pods.

Source: pod-security-admission of Kubernetes v1.36.
"""

from __future__ import annotations

import re
from typing import Any

from kubeloop.devcluster import errors
from kubeloop.devcluster.validation.field import Errors

JSON = dict[str, Any]
_LEVELS = ("privileged", "baseline", "restricted")


def check_labels(namespace: JSON) -> None:
    """Raises StatusError 422 where the labels that choose levels say something unknown."""
    found, given = Errors(), namespace["metadata"].get("labels", {})
    for mode in ("enforce", "audit", "warn"):
        key = f"pod-security.kubernetes.io/{mode}"
        level, version = given.get(key), given.get(f"{key}-version")
        if level is not None and level not in _LEVELS:
            found.invalid(f"metadata.labels[{key}]", level, f"must be one of {', '.join(_LEVELS)}")
        if version is not None and not re.fullmatch(r"latest|v1\.([0-9]|[1-9][0-9]*)", version):
            found.invalid(f"metadata.labels[{key}-version]", version, 'must be "latest" or "v1.x"')
    if found:
        raise errors.invalid("", "Namespace", namespace["metadata"].get("name", ""), found)
