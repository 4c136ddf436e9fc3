"""Volumes of pods. Source: pkg/apis/core/validation/validation.go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubeloop.devcluster.validation.containers import VOLUME_FIELDS, field_reference, local_path, resource_reference
from kubeloop.devcluster.validation.field import Errors, dns_label
from kubeloop.kube.quantity import milli_value

JSON = dict[str, Any]

_SOURCES = (
    "emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi",
    "glusterfs", "persistentVolumeClaim", "rbd", "cinder", "cephfs", "flocker", "downwardAPI", "fc", "azureFile",
    "configMap", "vsphereVolume", "quobyte", "azureDisk", "photonPersistentDisk", "projected", "scaleIO", "csi",
    "ephemeral", "image", "storageos", "portworxVolume",
)  # fmt: skip
_HOST_PATH_TYPES = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
)  # fmt: skip
_MODE = "must be a number between 0 and 0777 (octal), both inclusive"


def volumes(errors: Errors, path: str, spec: JSON) -> dict[str, JSON]:
    """Check spec.volumes; returns those that can be mounted, by name."""
    found: dict[str, JSON] = {}
    for i, volume in enumerate(spec.get("volumes", ())):
        where, name = f"{path}[{i}]", volume.get("name", "")
        wrong = Errors()
        _source(wrong, where, volume)
        if not name:
            wrong.required(f"{where}.name")
        elif bad := dns_label(name):
            wrong.invalid_each(f"{where}.name", name, bad)
        if name in found:
            wrong.duplicate(f"{where}.name", name)
        if not wrong:
            found[name] = volume
        errors.extend(wrong)
    return found


def _mode(errors: Errors, path: str, value: int | None) -> None:
    if value is not None and not 0 <= value <= 0o777:
        errors.invalid(path, value, _MODE)


def _items(errors: Errors, path: str, items: Sequence[JSON]) -> None:
    for i, item in enumerate(items):
        where = f"{path}[{i}]"
        if not item.get("key"):
            errors.required(f"{where}.key")
        if not item.get("path"):
            errors.required(f"{where}.path")
        else:
            local_path(errors, f"{where}.path", item["path"])
            if item["path"].startswith("..") and ".." not in item["path"].split("/"):
                errors.invalid(f"{where}.path", item["path"], "must not start with '..'")
        _mode(errors, f"{where}.mode", item.get("mode"))


def _downward(errors: Errors, path: str, source: JSON) -> None:
    _mode(errors, f"{path}.defaultMode", source.get("defaultMode"))
    for i, item in enumerate(source.get("items", ())):
        where = f"{path}.items[{i}]" if "items" in source else path
        if not item.get("path"):
            errors.required(f"{path}.path")
        else:
            local_path(errors, f"{path}.path", item["path"])
        if "fieldRef" in item:
            field_reference(errors, f"{where}.fieldRef", item["fieldRef"], VOLUME_FIELDS)
            if "resourceFieldRef" in item:
                errors.invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
        elif "resourceFieldRef" in item:
            resource_reference(errors, f"{where}.resourceFieldRef", item["resourceFieldRef"], in_volume=True)
        else:
            errors.required(path, "one of fieldRef and resourceFieldRef is required")
        _mode(errors, f"{where}.mode", item.get("mode"))


def _projected(errors: Errors, path: str, source: JSON) -> None:
    _mode(errors, f"{path}.defaultMode", source.get("defaultMode"))
    for i, projection in enumerate(source.get("sources") or ()):
        where = f"{path}.sources[{i}]"
        kinds = list(projection)
        for kind in kinds[1:]:
            errors.forbidden(f"{where}.{kind}", "may not specify more than 1 volume type")
        for kind in kinds[:1]:
            each = projection[kind]
            if kind in ("configMap", "secret"):
                if not each.get("name"):
                    errors.required(f"{where}.{kind}.name")
                _items(errors, f"{where}.{kind}.items", each.get("items", ()))
            elif kind == "downwardAPI":
                _downward(errors, f"{where}.downwardAPI", each)
            elif kind == "serviceAccountToken":
                seconds = each.get("expirationSeconds", 0)
                if seconds < 600:
                    wrong = "may not specify a duration less than 10 minutes"
                    errors.invalid(f"{where}.serviceAccountToken.expirationSeconds", seconds, wrong)
                if seconds > 1 << 32:
                    wrong = "may not specify a duration larger than 2^32 seconds"
                    errors.invalid(f"{where}.serviceAccountToken.expirationSeconds", seconds, wrong)
                if not each.get("path"):
                    errors.required(f"{where}.serviceAccountToken.path")
                else:
                    local_path(errors, f"{where}.serviceAccountToken.path", each["path"])


def _source(errors: Errors, path: str, volume: JSON) -> None:
    kinds = [kind for kind in _SOURCES if kind in volume]
    if not kinds:
        errors.required(path, "must specify a volume type")
        return
    for kind in kinds[1:]:
        errors.forbidden(f"{path}.{kind}", "may not specify more than 1 volume type")
    kind = kinds[0]
    where, source = f"{path}.{kind}", volume[kind]
    if kind == "emptyDir":
        if "sizeLimit" in source and milli_value(source["sizeLimit"]) < 0:
            errors.forbidden(f"{where}.sizeLimit", "SizeLimit field must be a valid resource quantity")
    elif kind == "hostPath":
        if not source.get("path"):
            errors.required(f"{where}.path")
        elif ".." in source["path"].split("/"):
            errors.invalid(f"{where}.path", source["path"], "must not contain '..'")
        if source.get("type", "") not in _HOST_PATH_TYPES:
            errors.not_supported(f"{where}.type", source["type"], _HOST_PATH_TYPES)
    elif kind == "secret":
        if not source.get("secretName"):
            errors.required(f"{where}.secretName")
        _mode(errors, f"{where}.defaultMode", source.get("defaultMode"))
        _items(errors, f"{where}.items", source.get("items", ()))
    elif kind == "configMap":
        if not source.get("name"):
            errors.required(f"{where}.name")
        _mode(errors, f"{where}.defaultMode", source.get("defaultMode"))
        _items(errors, f"{where}.items", source.get("items", ()))
    elif kind == "persistentVolumeClaim":
        if not source.get("claimName"):
            errors.required(f"{where}.claimName")
    elif kind == "downwardAPI":
        _downward(errors, where, source)
    elif kind == "projected":
        _projected(errors, where, source)
    elif kind == "nfs":
        for name in ("server", "path"):
            if not source.get(name):
                errors.required(f"{where}.{name}")
        if source.get("path") and not source["path"].startswith("/"):
            errors.invalid(f"{where}.path", source["path"], "must be an absolute path")
    elif kind == "csi":
        if not source.get("driver"):
            errors.required(f"{where}.driver")
    elif kind == "ephemeral" and "volumeClaimTemplate" not in source:
        errors.required(f"{where}.volumeClaimTemplate")
