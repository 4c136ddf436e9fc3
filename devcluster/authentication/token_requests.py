"""serviceaccounts/NAME/token: tokens that are signed, and with which one is that service account (`authentication`).

Source: pkg/registry/core/serviceaccount/storage/token.go, pkg/apis/authentication/validation of v1.36.
"""

from __future__ import annotations

import random
import uuid
from datetime import datetime, timedelta
from typing import Any

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.authentication.token_signing import TokenKey
from kubeloop.devcluster.storage.store import Store
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NODES, PODS, SECRETS, SERVICE_ACCOUNTS, Resource

ISSUER = "https://kubernetes.default.svc"
USUAL_SECONDS = 3600
_SHORTEST_SECONDS, _LONGEST_SECONDS = 600, 2**32
_GROUP, _KIND = "authentication.k8s.io", "TokenRequest"
_BOUND: dict[str, Resource[Any]] = {"Pod": PODS, "Node": NODES, "Secret": SECRETS}


def with_usual_duration(obj: JSON) -> None:
    """Default spec.expirationSeconds of a decoded request; a zero stays one."""
    spec = obj["spec"] = obj.get("spec") or {}
    if spec.get("expirationSeconds") is None:
        spec["expirationSeconds"] = USUAL_SECONDS


def granted(
    store: Store, name: str, namespace: str, obj: JSON, now: datetime, rng: random.Random, key: TokenKey
) -> JSON:
    """The request as it is answered, with a token. Raises StatusError 400, 404, 409, 422.

    name, namespace: the service account's, from the path. obj: decoded, with its usual duration. key: signs the token.
    """
    metadata = obj["metadata"]
    if (given := metadata.get("name")) and given != name:
        wrong = ErrorList()
        wrong.invalid("metadata.name", given, "must match the service account name if specified")
        raise errors.invalid(_GROUP, _KIND, name, wrong)
    account = store.get(SERVICE_ACCOUNTS, namespace, name)
    if account is None:
        raise errors.not_found(SERVICE_ACCOUNTS, name)
    uid = account["metadata"]["uid"]
    if (given := metadata.get("uid")) and given != uid:
        why = f"the UID in the token request ({given}) does not match the UID of the service account ({uid})"
        raise errors.kind_conflict(_GROUP, _KIND, name, why)
    spec = {**obj["spec"], "audiences": obj["spec"].get("audiences") or [ISSUER]}
    spec.setdefault("boundObjectRef", None)
    _check_seconds(spec["expirationSeconds"])
    about: JSON = {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}}
    if (reference := spec["boundObjectRef"]) is not None:
        about |= _bound_claims(store, reference.get("kind", ""), _bound(store, reference, name, namespace))
    begins = int(now.timestamp())
    claims = {
        "aud": spec["audiences"],
        "exp": begins + spec["expirationSeconds"],
        "iat": begins,
        "iss": ISSUER,
        "jti": str(uuid.UUID(int=rng.getrandbits(128), version=4)),
        "kubernetes.io": about,
        "nbf": begins,
        "sub": f"system:serviceaccount:{namespace}:{name}",
    }
    identity = {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": rfc3339(now)}
    until = rfc3339(now + timedelta(seconds=spec["expirationSeconds"]))
    status = {"token": key.sign(claims), "expirationTimestamp": until}
    return {**obj, "metadata": {**metadata, **identity}, "spec": spec, "status": status}


def _check_seconds(seconds: int) -> None:
    wrong, path = ErrorList(), "spec.expirationSeconds"
    if seconds < _SHORTEST_SECONDS:
        wrong.invalid(path, seconds, "may not specify a duration less than 10 minutes")
    if seconds > _LONGEST_SECONDS:
        wrong.invalid(path, seconds, "may not specify a duration larger than 2^32 seconds")
    if wrong:
        raise errors.invalid(_GROUP, _KIND, "", wrong)


def _bound_claims(store: Store, kind: str, bound: JSON) -> JSON:
    """What a token says of the object it is bound to; of a pod's node, too."""
    claims: JSON = {kind.lower(): {"name": bound["metadata"]["name"], "uid": bound["metadata"]["uid"]}}
    if kind == "Pod" and (name := bound["spec"].get("nodeName")):
        node = store.get(NODES, "", name)
        claims["node"] = {"name": name} if node is None else {"name": name, "uid": node["metadata"]["uid"]}
    return claims


def _bound(store: Store, reference: JSON, account: str, namespace: str) -> JSON:
    kind, api_version, name = (reference.get(each, "") for each in ("kind", "apiVersion", "name"))
    # More than one slash is no API version: what it names is taken for a kind of the core group.
    group, version = ("", "") if api_version.count("/") > 1 else api_version.rpartition("/")[::2]
    if group or kind not in _BOUND:
        raise errors.bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    resource = _BOUND[kind]
    if not name:
        raise errors.bad_request("Name parameter required.")
    bound = store.get(resource, namespace if resource.namespaced else "", name)
    if bound is None:
        raise errors.not_found(resource, name)
    if resource is PODS and bound["spec"].get("serviceAccountName", "") != account:
        why = f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
        raise errors.bad_request(why)
    if (given := reference.get("uid")) and given != bound["metadata"]["uid"]:
        why = (
            f"the UID in the bound object reference ({given}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise errors.kind_conflict("", kind, name, why)
    return bound
