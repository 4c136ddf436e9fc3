"""ServiceAccount: the account of a pod, its API token volume and image pull secrets, and the secrets that it may use.

Source: plugin/pkg/admission/serviceaccount of Kubernetes v1.36. The plugin does not wait for the account `default`:
this server creates it with the namespace.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.authorization.pod_references import secret_names
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.devcluster.validation.common.object_meta import path_segment
from kubeloop.devcluster.validation.pod.token_source import TOKEN_SOURCE, TOKEN_VOLUME_PREFIX
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import PODS, SERVICE_ACCOUNTS
from kubeloop.kube.uids import name_suffix
from kubeloop.kube.validation.field_errors import quoted

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
TOKEN_MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_DEFAULT_ACCOUNT = "default"
_ENFORCE_ANNOTATION = "kubernetes.io/enforce-mountable-secrets"
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})  # strconv.ParseBool


def admit_pod(store: ObjectStore, pod: JSON, namespace: str, rng: random.Random) -> None:
    """Set a new pod's account, token volume and image pull secrets, in place, and check it. Raises StatusError 403."""
    spec = pod["spec"]
    if _is_mirror(pod):
        check_pod(store, pod, namespace)
        return
    if not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = spec["serviceAccount"] = _DEFAULT_ACCOUNT
    account = _account_of(store, pod, namespace)
    automount = spec.get("automountServiceAccountToken")
    if automount is None:
        automount = account.get("automountServiceAccountToken", True)
    if automount:
        _mount_token(spec, rng)
    if not spec.get("imagePullSecrets") and (references := account.get("imagePullSecrets")):
        spec["imagePullSecrets"] = [{"name": reference.get("name", "")} for reference in references]
    _check_secrets(account, pod)


def check_pod(store: ObjectStore, pod: JSON, namespace: str) -> None:
    """Raise StatusError 403 for a new pod whose account does not exist or may not use the pod's secrets."""
    if _is_mirror(pod):
        _check_mirror_pod(pod)
    else:
        _check_secrets(_account_of(store, pod, namespace), pod)


def check_ephemeral_containers(store: ObjectStore, pod: JSON, namespace: str) -> None:
    """Raise StatusError for new ephemeral containers with secrets that the pod's account does not reference.

    403 without an account; 500 for a secret, as in v1.36, whose plugin returns this error without a Status.
    """
    account = _account_of(store, pod, namespace)
    if _enforces_secrets(account):
        allowed = _names(account.get("secrets"))
        for where, name in _environment_secrets(pod["spec"].get("ephemeralContainers") or (), "ephemeral container"):
            if name not in allowed:
                raise errors.internal(f"{where} {_refusal(name, account)}")


def _is_mirror(pod: JSON) -> bool:
    return MIRROR_ANNOTATION in pod["metadata"].get("annotations", ())


def _forbidden(pod: JSON, message: str) -> errors.StatusError:
    return errors.forbidden(PODS, errors.name_in_message(pod), message)


def _account_of(store: ObjectStore, pod: JSON, namespace: str) -> JSON:
    name = pod["spec"].get("serviceAccountName", "")
    if not name:
        key = f"{namespace}/{pod['metadata'].get('name', '')}"
        raise _forbidden(pod, f"no service account specified for pod {key}")
    account = store.get(SERVICE_ACCOUNTS, namespace, name)
    if account is None:
        problems = path_segment(name)  # kube-apiserver's client refuses to look these names up
        invalid = f"invalid resource name {quoted(name)}: [{' '.join(problems)}]"
        problem = invalid if problems else f"serviceaccount {quoted(name)} not found"
        raise _forbidden(pod, f"error looking up service account {namespace}/{name}: {problem}")
    return account


# --- the token volume -------------------------------------------------------------------------------------------------


def _mount_token(spec: JSON, rng: random.Random) -> None:
    """Mount the token into each container that mounts nothing else at its path, and add its volume if needed."""
    volumes = spec.get("volumes") or []
    present = next((volume["name"] for volume in volumes if volume["name"].startswith(TOKEN_VOLUME_PREFIX)), "")
    name = present or TOKEN_VOLUME_PREFIX + name_suffix(rng)
    token_mount = {"name": name, "readOnly": True, "mountPath": TOKEN_MOUNT_PATH}
    is_mounted = False
    for containers in (spec.get("initContainers") or (), spec.get("containers") or ()):
        for container in containers:
            mounts = container.get("volumeMounts") or []
            if not any(mount.get("mountPath") == TOKEN_MOUNT_PATH for mount in mounts):
                container["volumeMounts"] = [*mounts, token_mount]
                is_mounted = True
    if is_mounted and not present:
        spec["volumes"] = [*volumes, {"name": name, "projected": TOKEN_SOURCE}]


# --- secrets ----------------------------------------------------------------------------------------------------------


def _enforces_secrets(account: JSON) -> bool:
    return account["metadata"].get("annotations", {}).get(_ENFORCE_ANNOTATION) in _TRUE


def _names(references: list[JSON] | None) -> set[str]:
    return {reference.get("name", "") for reference in references or ()}


def _refusal(name: str, account: JSON) -> str:
    described = f'secret.secretName="{name}" is not allowed because service account {account["metadata"]["name"]}'
    return f"referencing {described} does not reference that secret"


def _check_secrets(account: JSON, pod: JSON) -> None:
    """Raise StatusError 403 for the first secret that an account does not reference, if it restricts them."""
    if not _enforces_secrets(account):
        return
    spec, allowed = pod["spec"], _names(account.get("secrets"))
    for volume in spec.get("volumes") or ():
        if "secret" in volume and (name := volume["secret"].get("secretName", "")) not in allowed:
            raise _forbidden(pod, f"volume with {_refusal(name, account).removeprefix('referencing ')}")
    for kind, containers in (("init container", spec.get("initContainers")), ("container", spec.get("containers"))):
        for where, name in _environment_secrets(containers or (), kind):
            if name not in allowed:
                raise _forbidden(pod, f"{where} {_refusal(name, account)}")
    pull_secrets = _names(account.get("imagePullSecrets"))
    for i, reference in enumerate(spec.get("imagePullSecrets") or ()):
        if (name := reference.get("name", "")) not in pull_secrets:
            owner = account["metadata"]["name"]
            reason = f"is not allowed because service account {owner} does not reference that imagePullSecret"
            raise _forbidden(pod, f'imagePullSecrets[{i}].name="{name}" {reason}')


def _environment_secrets(containers: list[JSON] | tuple[()], kind: str) -> Iterator[tuple[str, str]]:
    """Yield (description of the place, name of a secret) of the containers' environments."""
    for container in containers:
        where = f"{kind} {container.get('name', '')}"
        for variable in container.get("env") or ():
            if reference := (variable.get("valueFrom") or {}).get("secretKeyRef"):
                yield f"{where} with envVar {variable.get('name', '')}", reference.get("name", "")
        for source in container.get("envFrom") or ():
            if reference := source.get("secretRef"):
                yield f"{where} with envFrom", reference.get("name", "")


# --- mirror pods ------------------------------------------------------------------------------------------------------


def _check_mirror_pod(pod: JSON) -> None:
    """Raise StatusError 403 for a mirror pod that uses what only the API server knows."""
    spec = pod["spec"]
    if spec.get("serviceAccountName"):
        raise _forbidden(pod, "a mirror pod may not reference service accounts")
    if any(secret_names(spec)):
        raise _forbidden(pod, "a mirror pod may not reference secrets")
    for volume in spec.get("volumes") or ():
        sources = (volume.get("projected") or {}).get("sources") or ()
        if any("serviceAccountToken" in source for source in sources):
            raise _forbidden(pod, "a mirror pod may not use ServiceAccountToken volume projections")
