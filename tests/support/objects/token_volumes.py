"""The token volumes that ServiceAccount admission adds to pods, as they are compared between servers."""

from __future__ import annotations

import re
from typing import Any

_NAME = re.compile(r"\bkube-api-access-[bcdfghjklmnpqrstvwxz2456789]{5}\b")
_LINES = re.compile(r"@@ -\d+,\d+ \+\d+,\d+ @@")
_FORK_SOURCE = "openshift-service-ca.crt"  # builds of OpenShift's fork of Kubernetes project another ConfigMap


def masked_token_volumes(value: Any) -> Any:
    """Return JSON without the random part of the volumes' names, and without the source that a fork adds.

    Messages with differences of pods name no line numbers, which that source changes.
    """
    if type(value) is str:
        return _LINES.sub("@@", _NAME.sub("kube-api-access-(random)", value))
    if type(value) is list:
        return [masked_token_volumes(item) for item in value if not _is_fork_source(item)]
    if type(value) is dict:
        return {name: masked_token_volumes(inner) for name, inner in value.items()}
    return value


def _is_fork_source(item: Any) -> bool:
    source = item.get("configMap") if type(item) is dict else None
    return type(source) is dict and source.get("name") == _FORK_SOURCE
