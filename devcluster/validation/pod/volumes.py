"""Validation of a pod's volumes, and of the sources they share with PersistentVolumes.

Source: pkg/apis/core/validation/validation.go of Kubernetes v1.36.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from kubeloop.devcluster.validation.common.error_list import (
    ErrorList,
    validate_local_path,
    validate_local_path_not_reserved,
)
from kubeloop.devcluster.validation.common.object_meta import validate_template_metadata
from kubeloop.devcluster.validation.common.persistent_volume_claim_spec import validate_claim_spec
from kubeloop.devcluster.validation.pod.containers import (
    VOLUME_FIELDS,
    validate_field_reference,
    validate_resource_reference,
)
from kubeloop.devcluster.validation.pod.token_source import is_token_volume
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.validation.name_checks import dns_label, dns_subdomain
from kubeloop.kube.values.quantities import parse_quantity

SourceCheck = Callable[[ErrorList, str, JSON], None]

_HOST_PATH_TYPES = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
)  # fmt: skip
_MODE_RANGE = "must be a number between 0 and 0777 (octal), both inclusive"
_EXTRA_SOURCE = "may not specify more than 1 volume type"
_DUPLICATE_PATHS = "conflicting duplicate paths"


def validate_volumes(
    errors: ErrorList, path: str, spec: JSON, pod_name: str = "", *, in_pod: bool = True
) -> dict[str, JSON]:
    """Validate spec.volumes; return the mountable ones by name. pod_name: "" for templates (in_pod=False)."""
    mountable: dict[str, JSON] = {}
    volumes = spec.get("volumes") or ()
    created_claims = {
        f"{pod_name}-{volume.get('name', '')}" for volume in volumes if pod_name and "ephemeral" in volume
    }
    for i, volume in enumerate(volumes):
        where, name = f"{path}[{i}]", volume.get("name", "")
        problems = ErrorList()
        if not is_token_volume(volume):
            _validate_source(problems, where, volume, pod_name, in_pod=in_pod)
        problems.check_required(f"{where}.name", name, dns_label)
        if name in mountable:
            problems.duplicate(f"{where}.name", name)
        if not problems:
            mountable[name] = volume
        errors.extend(problems)
        claim = volume.get("persistentVolumeClaim", {}).get("claimName", "")
        if claim in created_claims:
            detail = "must not reference a PVC that gets created for an ephemeral volume"
            errors.invalid(f"{where}.persistentVolumeClaim.claimName", claim, detail)
    return mountable


def require_fields(*names: str) -> SourceCheck:
    """Return a check of a source that only requires these fields."""

    def check(errors: ErrorList, path: str, source: JSON) -> None:
        errors.required_fields(path, source, *names)

    return check


def _validate_mode(errors: ErrorList, path: str, value: int | None) -> None:
    if value is not None and not 0 <= value <= 0o777:
        errors.invalid(path, value, _MODE_RANGE)


def _validate_items(errors: ErrorList, path: str, items: Sequence[JSON]) -> None:
    for i, item in enumerate(items):
        _validate_item(errors, f"{path}[{i}]", item)


def _validate_item(errors: ErrorList, path: str, item: JSON) -> None:
    errors.required_fields(path, item, "key", "path")
    validate_local_path_not_reserved(errors, f"{path}.path", item.get("path", ""))
    _validate_mode(errors, f"{path}.mode", item.get("mode"))


def _validate_empty_dir(errors: ErrorList, path: str, source: JSON) -> None:
    if "sizeLimit" in source and parse_quantity(source["sizeLimit"]).sign < 0:
        errors.forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")


def validate_host_path(errors: ErrorList, path: str, source: JSON) -> None:
    if not errors.require(f"{path}.path", source.get("path")):
        return
    if ".." in source["path"].split("/"):
        errors.invalid(f"{path}.path", source["path"], "must not contain '..'")
    if source.get("type", "") not in _HOST_PATH_TYPES:
        errors.not_supported(f"{path}.type", source["type"], _HOST_PATH_TYPES)


def _validate_git_repo(errors: ErrorList, path: str, source: JSON) -> None:
    errors.required_fields(path, source, "repository")
    validate_local_path(errors, f"{path}.directory", source.get("directory", ""))


def cloud_disk(name: str) -> SourceCheck:
    """Return a check of a cloud provider's disk, which is identified by the field `name`, with a partition."""

    def check(errors: ErrorList, path: str, source: JSON) -> None:
        errors.required_fields(path, source, name)
        if not 0 <= source.get("partition", 0) <= 255:
            errors.invalid(f"{path}.partition", source["partition"], "must be between 1 and 255, inclusive")

    return check


def _key_files(name: str) -> SourceCheck:
    """Return a check of a ConfigMap or Secret volume; `name`: the field that refers to the object."""

    def check(errors: ErrorList, path: str, source: JSON) -> None:
        errors.required_fields(path, source, name)
        _validate_mode(errors, f"{path}.defaultMode", source.get("defaultMode"))
        _validate_items(errors, f"{path}.items", source.get("items", ()))

    return check


def validate_nfs(errors: ErrorList, path: str, source: JSON) -> None:
    errors.required_fields(path, source, "server", "path")
    if not source.get("path", "").startswith("/"):
        errors.invalid(f"{path}.path", source.get("path", ""), "must be an absolute path")


_ISCSI_NAMES = {
    "iqn": re.compile(r"iqn\.\d{4}-\d{2}\.([a-zA-Z0-9-.]+)(:[^,;*&$|\s]+)"),
    "eui": re.compile(r"eui\.[a-zA-Z0-9]{16}"),
    "naa": re.compile(r"naa\.[a-zA-Z0-9]{32}"),
}


def _validate_iscsi_name(errors: ErrorList, path: str, name: str) -> None:
    pattern = _ISCSI_NAMES.get(name[:3])
    if pattern is None and not path.startswith("spec.iscsi."):  # shorter message for PersistentVolumes
        errors.invalid(path, name, "must be valid format starting with iqn, eui, or naa")
    elif pattern is None or not pattern.fullmatch(name):
        errors.invalid(path, name, "must be valid format")


def validate_iscsi(errors: ErrorList, path: str, source: JSON) -> None:
    errors.required_fields(path, source, "targetPortal", "iqn")
    if source.get("iqn"):
        _validate_iscsi_name(errors, f"{path}.iqn", source["iqn"])
    _validate_lun(errors, f"{path}.lun", source.get("lun", 0))
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and source.get("secretRef") is None:
        errors.required(f"{path}.secretRef")
    if source.get("initiatorName") is not None:
        _validate_iscsi_name(errors, f"{path}.initiatorname", source["initiatorName"])


def _validate_lun(errors: ErrorList, path: str, lun: int) -> None:
    if not 0 <= lun <= 255:
        errors.invalid(path, lun, "must be between 0 and 255, inclusive")


def validate_fibre_channel(errors: ErrorList, path: str, source: JSON) -> None:
    targets, ids, lun = source.get("targetWWNs") or [], source.get("wwids") or [], source.get("lun")
    if not targets and not ids:
        errors.required(f"{path}.targetWWNs", "must specify either targetWWNs or wwids, but not both")
    if targets and ids:
        detail = "targetWWNs and wwids can not be specified simultaneously"
        errors.invalid(f"{path}.targetWWNs", targets, detail)
    if targets and lun is None:
        errors.required(f"{path}.lun", "lun is required if targetWWNs is specified")
    elif targets:
        _validate_lun(errors, f"{path}.lun", lun or 0)


def _require_fields_and_secret_name(*names: str) -> SourceCheck:
    def check(errors: ErrorList, path: str, source: JSON) -> None:
        errors.required_fields(path, source, *names)
        if source.get("secretRef") is not None and not source["secretRef"].get("name"):
            errors.required(f"{path}.secretRef.name")

    return check


def _validate_flocker(errors: ErrorList, path: str, source: JSON) -> None:
    name, uid = source.get("datasetName", ""), source.get("datasetUUID", "")
    if not name and not uid:
        errors.required(path, "one of datasetName and datasetUUID is required")
    if name and uid:
        errors.invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously")
    if "/" in name:
        errors.invalid(f"{path}.datasetName", name, "must not contain '/'")


def _validate_flex_volume(errors: ErrorList, path: str, source: JSON) -> None:
    errors.required_fields(path, source, "driver")
    for key in sorted(source.get("options") or ()):
        if f".{key.partition('/')[0].lower()}".endswith((".kubernetes.io", ".k8s.io")):
            detail = "kubernetes.io and k8s.io namespaces are reserved"
            errors.invalid(f"{path}.options[{key}]", key, detail)


_AZURE_DISK = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
_AZURE_BLOB = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"


def _validate_azure_disk(errors: ErrorList, path: str, source: JSON) -> None:
    errors.required_fields(path, source, "diskName", "diskURI")
    uri, kind = source.get("diskURI", ""), source.get("kind")
    for name, supported in (
        ("cachingMode", ("None", "ReadOnly", "ReadWrite")),
        ("kind", ("Dedicated", "Managed", "Shared")),
    ):
        errors.one_of(f"{path}.{name}", source.get(name), supported)
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        errors.not_supported(f"{path}.diskURI", uri, (_AZURE_DISK,))
    elif kind not in (None, "Managed") and not uri.startswith("https://"):
        errors.not_supported(f"{path}.diskURI", uri, (_AZURE_BLOB,))


def _validate_downward_api_item(errors: ErrorList, path: str, item: JSON) -> None:
    errors.required_fields(path, item, "path")
    validate_local_path_not_reserved(errors, f"{path}.path", item.get("path", ""))
    if "fieldRef" in item:
        validate_field_reference(errors, f"{path}.fieldRef", item["fieldRef"], VOLUME_FIELDS)
        if "resourceFieldRef" in item:
            errors.invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
    elif "resourceFieldRef" in item:
        validate_resource_reference(errors, f"{path}.resourceFieldRef", item["resourceFieldRef"], in_volume=True)
    else:
        errors.required(path, "one of fieldRef and resourceFieldRef is required")
    _validate_mode(errors, f"{path}.mode", item.get("mode"))


def _validate_downward_api(errors: ErrorList, path: str, source: JSON) -> None:
    """Validate a downwardAPI volume; as in Kubernetes, the paths of errors leave out the item."""
    _validate_mode(errors, f"{path}.defaultMode", source.get("defaultMode"))
    for item in source.get("items", ()):
        _validate_downward_api_item(errors, path, item)


def _validate_projected(errors: ErrorList, path: str, source: JSON) -> None:
    _validate_mode(errors, f"{path}.defaultMode", source.get("defaultMode"))
    used_paths: set[str] = set()
    for i, projection in enumerate(source.get("sources") or ()):
        where = f"{path}.sources[{i}]"
        for kind in ("secret", "configMap"):
            source_object = projection.get(kind)
            if source_object is None:
                continue
            errors.required_fields(f"{where}.{kind}", source_object, "name")
            for j, item in enumerate(source_object.get("items", ())):
                _validate_item(errors, f"{where}.{kind}.items[{j}]", item)
                _validate_unique_path(errors, path, used_paths, item.get("path", ""), source_object.get("name", ""))
        for item in projection.get("downwardAPI", {}).get("items", ()):
            _validate_downward_api_item(errors, f"{where}.downwardAPI", item)
            _validate_unique_path(errors, path, used_paths, item.get("path", ""), item.get("path", ""))
        if "serviceAccountToken" in projection:
            _validate_service_account_token(
                errors, path, f"{where}.serviceAccountToken", projection["serviceAccountToken"]
            )
        if len(projection) > 1:
            errors.forbidden(where, "may not specify more than 1 volume type per source")


def _validate_unique_path(
    errors: ErrorList, path: str, used_paths: set[str], item_path: str, invalid_value: str
) -> None:
    if item_path in used_paths:
        errors.invalid(path, invalid_value, _DUPLICATE_PATHS)
    elif item_path:
        used_paths.add(item_path)


def _validate_service_account_token(errors: ErrorList, volume_path: str, path: str, token: JSON) -> None:
    seconds = token.get("expirationSeconds", 0)
    if seconds < 600:
        errors.invalid(f"{path}.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
    if seconds > 1 << 32:
        errors.invalid(f"{path}.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")
    if errors.require(f"{volume_path}.path", token.get("path")):
        validate_local_path_not_reserved(errors, f"{volume_path}.path", token["path"])


def validate_csi_driver_name(errors: ErrorList, path: str, name: str) -> None:
    if not errors.require(path, name):
        return
    if len(name) > 63:
        errors.too_long(path, 63)
    errors.invalid_each(path, name, dns_subdomain(name.lower()))


def _validate_csi(errors: ErrorList, path: str, source: JSON) -> None:
    validate_csi_driver_name(errors, f"{path}.driver", source.get("driver", ""))
    secret = source.get("nodePublishSecretRef")
    if secret is not None and not secret.get("name"):
        errors.required(f"{path}.nodePublishSecretRef.name")
    elif secret is not None:
        errors.check(f"{path}.name", secret["name"], dns_subdomain)


def _validate_ephemeral(errors: ErrorList, path: str, source: JSON) -> None:
    template = source.get("volumeClaimTemplate")
    if template is None:
        errors.required(f"{path}.volumeClaimTemplate")
        return
    where = f"{path}.volumeClaimTemplate"
    validate_template_metadata(errors, f"{where}.metadata", template.get("metadata", {}))
    validate_claim_spec(errors, f"{where}.spec", template.get("spec", {}))


def _validate_image(errors: ErrorList, path: str, source: JSON) -> None:
    policy = source.get("pullPolicy", "")
    errors.one_of(f"{path}.pullPolicy", policy, ("Always", "IfNotPresent", "Never"))


def _validate_quobyte(errors: ErrorList, path: str, source: JSON) -> None:
    registry, detail = source.get("registry", ""), "must be a host:port pair or multiple pairs separated by commas"
    if not registry:
        errors.required(f"{path}.registry", detail)
    elif len(source.get("tenant", "").encode()) > 64:
        errors.required(f"{path}.tenant", "must be a UUID and may not exceed a length of 64 characters")
    else:
        for pair in registry.split(","):
            if not _HOST_AND_PORT.fullmatch(pair):
                errors.invalid(f"{path}.registry", registry, detail)
    errors.required_fields(path, source, "volume")


_HOST_AND_PORT = re.compile(r"(?s)(\[[^\[\]]*\]|[^:\[\]]*):[^:\[\]]*")
"""Text that Go's net.SplitHostPort accepts; either side may be empty."""


def _validate_storage_os(errors: ErrorList, path: str, source: JSON) -> None:
    errors.required_fields(path, source, "volumeName")
    for name in ("volumeName", "volumeNamespace"):
        errors.check(f"{path}.{name}", source.get(name) or None, dns_label)
    if source.get("secretRef") is not None and not source["secretRef"].get("name"):
        errors.required(f"{path}.secretRef.name")


SHARED_SOURCES: dict[str, SourceCheck] = {
    "hostPath": validate_host_path,
    "gcePersistentDisk": cloud_disk("pdName"),
    "awsElasticBlockStore": cloud_disk("volumeID"),
    "nfs": validate_nfs,
    "iscsi": validate_iscsi,
    "glusterfs": require_fields("endpoints", "path"),
    "flocker": _validate_flocker,
    "rbd": require_fields("monitors", "image"),
    "cinder": _require_fields_and_secret_name("volumeID"),
    "cephfs": require_fields("monitors"),
    "quobyte": _validate_quobyte,
    "fc": validate_fibre_channel,
    "flexVolume": _validate_flex_volume,
    "azureFile": require_fields("secretName", "shareName"),
    "vsphereVolume": require_fields("volumePath"),
    "photonPersistentDisk": require_fields("pdID"),
    "portworxVolume": require_fields("volumeID"),
    "azureDisk": _validate_azure_disk,
    "storageos": _validate_storage_os,
    "scaleIO": require_fields("gateway", "system", "volumeName"),
}
"""Checks of the sources that pods' volumes and PersistentVolumes share."""

_SOURCES: dict[str, SourceCheck] = {
    "emptyDir": _validate_empty_dir,
    "hostPath": validate_host_path,
    "gitRepo": _validate_git_repo,
    **{name: SHARED_SOURCES[name] for name in ("gcePersistentDisk", "awsElasticBlockStore")},
    "secret": _key_files("secretName"),
    **{name: SHARED_SOURCES[name] for name in ("nfs", "iscsi", "glusterfs", "flocker")},
    "persistentVolumeClaim": require_fields("claimName"),
    **{name: SHARED_SOURCES[name] for name in ("rbd", "cinder", "cephfs", "quobyte")},
    "downwardAPI": _validate_downward_api,
    **{name: SHARED_SOURCES[name] for name in ("fc", "flexVolume")},
    "configMap": _key_files("name"),
    **{
        name: SHARED_SOURCES[name]
        for name in (
            "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk", "storageos"
        )
    },
    "projected": _validate_projected,
    "scaleIO": SHARED_SOURCES["scaleIO"],
    "csi": _validate_csi,
    "ephemeral": _validate_ephemeral,
    "image": _validate_image,
}  # fmt: skip
"""Checks by source, in Kubernetes' order: of several sources the first is validated, the others are forbidden."""

ERROR_PATH_NAMES = {"gcePersistentDisk": "persistentDisk"}
"""Names of sources in the paths of errors, where they differ from the field's name."""
_EXTRA_SOURCE_PATH_NAMES = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}


def _validate_source(errors: ErrorList, path: str, volume: JSON, pod_name: str, *, in_pod: bool) -> None:
    kinds = [kind for kind in _SOURCES if kind in volume]
    if not errors.require(path, kinds, "must specify a volume type"):
        return
    first, name = kinds[0], volume.get("name", "")
    if first == "image" and in_pod:
        errors.required_fields(f"{path}.image", volume["image"], "reference")
    _SOURCES[first](errors, f"{path}.{ERROR_PATH_NAMES.get(first, first)}", volume[first])
    portal = volume.get("iscsi", {}).get("targetPortal", "")
    too_long = "initiatorName" in volume.get("iscsi", ()) and len(f"{name}:{portal}".encode()) > _MAX_PORTAL_LENGTH
    if first == "iscsi" and too_long:
        errors.invalid(f"{path}.name", name, _PORTAL_TOO_LONG)
    if first == "ephemeral" and pod_name and name:
        for detail in dns_subdomain(f"{pod_name}-{name}"):
            errors.invalid(f"{path}.name", name, f"PVC name {quoted(f'{pod_name}-{name}')}: {detail}")
    for kind in kinds[1:]:
        errors.forbidden(f"{path}.{_EXTRA_SOURCE_PATH_NAMES.get(kind, kind)}", _EXTRA_SOURCE)
        if kind == "iscsi" and too_long:
            errors.invalid(f"{path}.name", name, _PORTAL_TOO_LONG)


_MAX_PORTAL_LENGTH = 64
_PORTAL_TOO_LONG = (
    "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is "
    "specified."
)
