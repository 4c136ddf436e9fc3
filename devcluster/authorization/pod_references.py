"""Secrets and ConfigMaps to which a pod refers. Source: pkg/api/v1/pod/util.go of v1.36."""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.kube.json_object import JSON

SECRET_REFERENCES = {
    "cephfs": "secretRef", "cinder": "secretRef", "flexVolume": "secretRef", "rbd": "secretRef", "scaleIO": "secretRef",
    "iscsi": "secretRef", "storageos": "secretRef", "csi": "nodePublishSecretRef",
}  # fmt: skip
"""Volume sources that name a secret in a reference, and its field."""


def secret_names(spec: JSON) -> Iterator[str]:
    """Yield the names of all secrets that the spec of a pod names."""
    for reference in spec.get("imagePullSecrets") or ():
        yield reference.get("name", "")
    yield from _environment_names(spec, "secretKeyRef", "secretRef")
    for volume in spec.get("volumes") or ():
        yield (volume.get("azureFile") or volume.get("secret") or {}).get("secretName", "")
        yield from _projected_names(volume, "secret")
        for kind, field in SECRET_REFERENCES.items():
            if kind in volume:
                yield (volume[kind].get(field) or {}).get("name", "")


def config_map_names(spec: JSON) -> Iterator[str]:
    """Yield the names of all ConfigMaps that the spec of a pod names."""
    yield from _environment_names(spec, "configMapKeyRef", "configMapRef")
    for volume in spec.get("volumes") or ():
        yield (volume.get("configMap") or {}).get("name", "")
        yield from _projected_names(volume, "configMap")


def _environment_names(spec: JSON, of_variable: str, of_all: str) -> Iterator[str]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(field) or ():
            for variable in container.get("env") or ():
                yield ((variable.get("valueFrom") or {}).get(of_variable) or {}).get("name", "")
            for source in container.get("envFrom") or ():
                yield (source.get(of_all) or {}).get("name", "")


def _projected_names(volume: JSON, kind: str) -> Iterator[str]:
    for source in (volume.get("projected") or {}).get("sources") or ():
        yield (source.get(kind) or {}).get("name", "")
