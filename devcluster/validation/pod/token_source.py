"""The source of the token volume that ServiceAccount admission adds to most pods. It is valid and has no warnings.

Source: plugin/pkg/admission/serviceaccount (TokenVolumeSource) of Kubernetes v1.36.
"""

from __future__ import annotations

from kubeloop.kube.json_object import JSON

TOKEN_EXPIRATION_SECONDS = 3607
"""Requested lifetime of mounted tokens; kube-apiserver extends tokens with this lifetime to a year."""


def token_source() -> JSON:
    """Return a new copy, with default values."""
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    return {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": TOKEN_EXPIRATION_SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [namespace]}},
        ],
        "defaultMode": 420,
    }


_SOURCE = token_source()


def is_token_volume(volume: JSON) -> bool:
    """Return True for a volume that needs no checks but that of its name; they would take a fifth of a pod's write."""
    return len(volume) == 2 and volume.get("projected") == _SOURCE
