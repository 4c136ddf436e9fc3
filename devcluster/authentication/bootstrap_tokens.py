"""Bootstrap tokens: Secrets of kube-system with which new nodes join a cluster.

Source: v1.36 plugin/pkg/auth/authenticator/token/bootstrap, cluster-bootstrap/util/secrets.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode
from datetime import datetime

from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import SECRETS
from kubeloop.kube.values.times import text_seconds

_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_EXTRA_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")


def bootstrap_token_user(store: ObjectStore, token: str, now: datetime) -> JSON | None:
    """Return the user of a bootstrap token, None if it is none or not valid."""
    match = _TOKEN.fullmatch(token)
    if match is None:
        return None
    secret = store.get(SECRETS, "kube-system", f"bootstrap-token-{match[1]}")
    if secret is None or "deletionTimestamp" in secret["metadata"]:
        return None
    if secret.get("type") != "bootstrap.kubernetes.io/token":
        return None
    data = {name: b64decode(text).decode(errors="replace") for name, text in (secret.get("data") or {}).items()}
    groups = data.get("auth-extra-groups", "").split(",") if data.get("auth-extra-groups") else []
    is_valid = (
        hmac.compare_digest(data.get("token-secret", "").encode(), match[2].encode())
        and data.get("token-id") == match[1]
        and not _has_expired(data.get("expiration", ""), now)
        and data.get("usage-bootstrap-authentication") == "true"
        and all(map(_EXTRA_GROUP.fullmatch, groups))
    )
    if not is_valid:
        return None
    return {"username": f"system:bootstrap:{match[1]}", "groups": sorted({"system:bootstrappers", *groups})}


def _has_expired(expiration: str, now: datetime) -> bool:
    """Return True for a time that is over, or that cannot be read."""
    try:
        return bool(expiration) and text_seconds(expiration)[0] <= now.timestamp()
    except ValueError:
        return True
