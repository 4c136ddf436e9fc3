"""Tokens of Secrets: valid as long as the Secret and its ServiceAccount exist.

Source: kubernetes pkg/serviceaccount/legacy.go of v1.36.
"""

from __future__ import annotations

import hmac
from base64 import b64decode
from datetime import datetime, timedelta

from kubeloop.devcluster.api.served_resources import get_served_resource
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.managedfields.field_sets import track_update
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import SECRETS, SERVICE_ACCOUNTS

LEGACY_ISSUER = "kubernetes/serviceaccount"
AUTO_GENERATED = (
    "Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated "
    "secret-based tokens."
)
_CLAIM = "kubernetes.io/serviceaccount/"
_INVALID_SINCE = "kubernetes.io/legacy-token-invalid-since"
_LAST_USED = "kubernetes.io/legacy-token-last-used"


class InvalidToken(Exception):
    """The token is not accepted, for the reason given in the text ("" if only its form or signature is wrong)."""


def check_legacy_token(store: ObjectStore, token: str, claims: JSON, now: datetime, warnings: list[str]) -> JSON:
    """Return the user of a signed token of a Secret, and note the use in a label of the Secret.

    warnings: gets the warning about a token that a controller once generated. Raises InvalidToken.
    """
    namespace, secret_name = claims[f"{_CLAIM}namespace"], claims[f"{_CLAIM}secret.name"]
    name, uid = claims[f"{_CLAIM}service-account.name"], claims[f"{_CLAIM}service-account.uid"]
    secret = store.get(SECRETS, namespace, secret_name)
    if secret is None or "deletionTimestamp" in secret["metadata"]:
        raise InvalidToken("Token has been invalidated")
    if not hmac.compare_digest(b64decode((secret.get("data") or {}).get("token", "")), token.encode()):
        raise InvalidToken("Token does not match server's copy")
    account = store.get(SERVICE_ACCOUNTS, namespace, name)
    if account is None:
        raise InvalidToken(f'serviceaccounts "{name}" not found')
    if "deletionTimestamp" in account["metadata"]:
        raise InvalidToken(f"ServiceAccount {namespace}/{name} has been deleted")
    if account["metadata"]["uid"] != uid:
        raise InvalidToken(f"ServiceAccount UID ({account['metadata']['uid']}) does not match claim ({uid})")
    if (secret["metadata"].get("labels") or {}).get(_INVALID_SINCE):
        _track_use(store, secret, now)
        raise InvalidToken(
            f"the token in secret {namespace}/{secret_name} for service account {namespace}/{name} has been marked "
            "invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the "
            f"'{_INVALID_SINCE}' label from the secret to temporarily allow use of this token"
        )
    if any(reference.get("name") == secret_name for reference in account.get("secrets") or ()):
        warnings.append(AUTO_GENERATED)
    _track_use(store, secret, now)
    return {
        "username": claims["sub"],
        "uid": uid,
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"],
    }


def _track_use(store: ObjectStore, secret: JSON, now: datetime) -> None:
    """Set the label with the day of the last use, unless it has this day or the next."""
    metadata = secret["metadata"]
    labels = metadata.get("labels") or {}
    today, tomorrow = (f"{day:%Y-%m-%d}" for day in (now, now + timedelta(days=1)))
    if labels.get(_LAST_USED) in (today, tomorrow):
        return
    updated = {**secret, "metadata": {**metadata, "labels": {**labels, _LAST_USED: today}}}
    served = get_served_resource(SECRETS)
    track_update(served, updated, secret, Writer("kube-apiserver"), lambda: rfc3339(now), subresource="")
    store.update(SECRETS, updated)
