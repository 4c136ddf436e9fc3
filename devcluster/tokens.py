"""serviceaccounts/NAME/token: tokens that say whose they are and are good for nothing; there is one administrator.

Source: pkg/registry/core/serviceaccount/storage/token.go, pkg/apis/authentication/validation of v1.36.
"""

from __future__ import annotations

import base64
import random
from datetime import datetime, timedelta
from typing import Any

import msgspec

from kubeloop.devcluster import errors
from kubeloop.devcluster.storage import Store
from kubeloop.devcluster.validation.field import Errors
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.resources import NODES, PODS, SECRETS, SERVICE_ACCOUNTS, Resource

JSON = dict[str, Any]

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


def granted(store: Store, name: str, namespace: str, obj: JSON, now: datetime, rng: random.Random) -> JSON:
    """The request as it is answered, with a token. Raises StatusError 400, 404, 409, 422.

    name, namespace: the service account's, from the path. obj: decoded, with its usual duration.
    """
    metadata = obj["metadata"]
    if (given := metadata.get("name")) and given != name:
        wrong = Errors()
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
    if spec["boundObjectRef"] is not None:
        _check_bound(store, spec["boundObjectRef"], name, namespace)
    until = rfc3339(now + timedelta(seconds=spec["expirationSeconds"]))
    claims = {"iss": ISSUER, "sub": f"system:serviceaccount:{namespace}:{name}", "aud": spec["audiences"], "exp": until}
    parts = (b'{"alg":"none"}', msgspec.json.encode(claims), rng.randbytes(16))
    token = ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)
    identity = {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": rfc3339(now)}
    status = {"token": token, "expirationTimestamp": until}
    return {**obj, "metadata": {**metadata, **identity}, "spec": spec, "status": status}


def _check_seconds(seconds: int) -> None:
    wrong, path = Errors(), "spec.expirationSeconds"
    if seconds < _SHORTEST_SECONDS:
        wrong.invalid(path, seconds, "may not specify a duration less than 10 minutes")
    if seconds > _LONGEST_SECONDS:
        wrong.invalid(path, seconds, "may not specify a duration larger than 2^32 seconds")
    if wrong:
        raise errors.invalid(_GROUP, _KIND, "", wrong)


def _check_bound(store: Store, reference: JSON, account: str, namespace: str) -> None:
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
