"""The token volume that ServiceAccount admission adds to most pods. Its source is valid and has no warnings.

Source: plugin/pkg/admission/serviceaccount (TokenVolumeSource) of Kubernetes v1.36.
"""

from __future__ import annotations

import re

from kubeloop.kube.json_object import JSON
from kubeloop.kube.uids import NAME_SUFFIX_LENGTH

TOKEN_EXPIRATION_SECONDS = 3607
"""Requested lifetime of mounted tokens; kube-apiserver extends tokens with this lifetime to a year."""
TOKEN_VOLUME_PREFIX = "kube-api-access-"
TOKEN_SOURCE: JSON = {
    "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_EXPIRATION_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]
            }
        },
    ],
    "defaultMode": 420,
}
"""With default values. All pods share this object: copy it before a change."""
_ADDED_NAME = re.compile(rf"{TOKEN_VOLUME_PREFIX}[a-z0-9]{{{NAME_SUFFIX_LENGTH}}}")
_COMMON_NAME = TOKEN_VOLUME_PREFIX + "x" * NAME_SUFFIX_LENGTH


def is_token_volume(volume: JSON) -> bool:
    """Return True for a volume that needs no checks but that of its name; they would take a fifth of a pod's write."""
    return len(volume) == 2 and volume.get("projected") == TOKEN_SOURCE


def with_common_token_volume_name(spec: JSON, encoded: bytes) -> bytes:
    """Return the encoded spec, with one name for the token volumes of all pods: as valid as before.

    The name is random, while the specs of a ReplicaSet's pods are the same otherwise. Every occurrence is replaced, by
    a name of the same length and characters that nothing else has, so that equal and different names remain so.
    """
    volumes = spec.get("volumes")
    if not volumes or not is_token_volume(volumes[-1]) or not _ADDED_NAME.fullmatch(volumes[-1].get("name", "")):
        return encoded
    common_name = _COMMON_NAME.encode()
    return encoded if common_name in encoded else encoded.replace(volumes[-1]["name"].encode(), common_name)
