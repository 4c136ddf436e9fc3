"""serviceaccounts/NAME/token: signed tokens for service accounts; `authenticator` verifies them.

Source: pkg/registry/core/serviceaccount/storage/token.go, pkg/apis/authentication/validation of v1.36.
"""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.authentication.service_account_token_key import TokenKey
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NODES, PODS, SECRETS, SERVICE_ACCOUNTS, Resource
from kubeloop.kube.uids import new_uid
from kubeloop.kube.values.times import time_plus

DEFAULT_EXPIRATION_SECONDS = 3600
_MIN_SECONDS, _MAX_SECONDS = 600, 2**32
_EXTENDED_SECONDS, _EXTENSION_SECONDS = 3607, 365 * 24 * 3600  # kubelet requests the first for projected volumes
_GROUP, _KIND = "authentication.k8s.io", "TokenRequest"
_BOUND_KINDS: dict[str, Resource[Any]] = {"Pod": PODS, "Node": NODES, "Secret": SECRETS}


def default_token_duration(obj: JSON) -> None:
    """Default spec.expirationSeconds of a decoded request; zero stays zero."""
    spec = obj["spec"] = obj.get("spec") or {}
    if spec.get("expirationSeconds") is None:
        spec["expirationSeconds"] = DEFAULT_EXPIRATION_SECONDS


def create_token(
    store: ObjectStore,
    name: str,
    namespace: str,
    obj: JSON,
    now: datetime,
    rng: random.Random,
    key: TokenKey,
    warnings: list[str],
) -> JSON:
    """Return a TokenRequest with its token. Raises StatusError 400, 404, 409, 422.

    name, namespace: of the service account, from the path. obj: decoded and defaulted. key: signs the token. warnings:
    extended.
    """
    metadata = obj["metadata"]
    if (requested_name := metadata.get("name")) and requested_name != name:
        causes = ErrorList()
        causes.invalid("metadata.name", requested_name, "must match the service account name if specified")
        raise errors.invalid(_GROUP, _KIND, name, causes)
    account = store.get(SERVICE_ACCOUNTS, namespace, name)
    if account is None:
        raise errors.not_found(SERVICE_ACCOUNTS, name)
    uid = account["metadata"]["uid"]
    if (requested_uid := metadata.get("uid")) and requested_uid != uid:
        raise errors.kind_conflict(_GROUP, _KIND, name, _uid_mismatch(requested_uid, uid))
    spec = {**obj["spec"], "audiences": obj["spec"].get("audiences") or [*key.audiences]}
    spec.setdefault("boundObjectRef", None)
    _check_expiration(spec["expirationSeconds"])
    settings, issued_at = key.settings, int(now.timestamp())
    private_claims: JSON = {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}}
    if (reference := spec["boundObjectRef"]) is not None:
        private_claims |= _bound_claims(
            store, reference.get("kind", ""), _bound_object(store, reference, name, namespace)
        )
    seconds = spec["expirationSeconds"]
    if 0 < settings.max_seconds < seconds:
        warnings.append(f"requested expiration of {seconds} seconds shortened to {settings.max_seconds} seconds")
        seconds = spec["expirationSeconds"] = settings.max_seconds
    if (
        settings.extends_expiration
        and "pod" in private_claims
        and seconds == _EXTENDED_SECONDS
        and key.audiences_include(spec["audiences"])
    ):
        private_claims["warnafter"] = issued_at + seconds
        seconds = _EXTENSION_SECONDS
    claims = {
        "aud": spec["audiences"],
        "exp": issued_at + seconds,
        "iat": issued_at,
        "iss": key.settings.issuers[0],
        "jti": new_uid(rng),
        "kubernetes.io": private_claims,
        "nbf": issued_at,
        "sub": f"system:serviceaccount:{namespace}:{name}",
    }
    identity = {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": rfc3339(now)}
    expires = rfc3339(time_plus(now, spec["expirationSeconds"]))
    status = {"token": key.sign(claims), "expirationTimestamp": expires}
    return {**obj, "metadata": {**metadata, **identity}, "spec": spec, "status": status}


def _uid_mismatch(requested_uid: str, uid: str) -> str:
    return f"the UID in the token request ({requested_uid}) does not match the UID of the service account ({uid})"


def account_uid_warning(requested_uid: str, uid: str) -> str:
    """Return the warning about another uid in a request, without TokenRequestServiceAccountUIDValidation."""
    consequence = (
        "TokenRequestServiceAccountUIDValidation is not enabled. In the future, this will return a conflict error"
    )
    return f"{_uid_mismatch(requested_uid, uid)} but {consequence}"


def _check_expiration(seconds: int) -> None:
    causes, path = ErrorList(), "spec.expirationSeconds"
    if seconds < _MIN_SECONDS:
        causes.invalid(path, seconds, "may not specify a duration less than 10 minutes")
    if seconds > _MAX_SECONDS:
        causes.invalid(path, seconds, "may not specify a duration larger than 2^32 seconds")
    if causes:
        raise errors.invalid(_GROUP, _KIND, "", causes)


def _bound_claims(store: ObjectStore, kind: str, bound: JSON) -> JSON:
    """Return the claims about the object a token is bound to, and about a bound pod's node."""
    claims: JSON = {kind.lower(): {"name": bound["metadata"]["name"], "uid": bound["metadata"]["uid"]}}
    if kind == "Pod" and (name := bound["spec"].get("nodeName")):
        node = store.get(NODES, "", name)
        claims["node"] = {"name": name} if node is None else {"name": name, "uid": node["metadata"]["uid"]}
    return claims


def _bound_object(store: ObjectStore, reference: JSON, account: str, namespace: str) -> JSON:
    kind, api_version, name = (reference.get(field, "") for field in ("kind", "apiVersion", "name"))
    # an API version with more than one slash is invalid, and its kind is looked up in the core group
    group, version = ("", "") if api_version.count("/") > 1 else api_version.rpartition("/")[::2]
    if group or kind not in _BOUND_KINDS:
        raise errors.bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    resource = _BOUND_KINDS[kind]
    if not name:
        raise errors.bad_request("Name parameter required.")
    bound = store.get(resource, namespace if resource.namespaced else "", name)
    if bound is None:
        raise errors.not_found(resource, name)
    if resource is PODS and bound["spec"].get("serviceAccountName", "") != account:
        message = f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
        raise errors.bad_request(message)
    if (requested_uid := reference.get("uid")) and requested_uid != bound["metadata"]["uid"]:
        message = (
            f"the UID in the bound object reference ({requested_uid}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise errors.kind_conflict("", kind, name, message)
    return bound
