"""Continue tokens of paged lists. Source: apiserver pkg/storage/continue.go."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from posixpath import normpath

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.serializer.decoding import json_kind
from kubeloop.devcluster.serializer.go_json_errors import go_json_error

_INCONSISTENT = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


def expired_continue_token(start: str) -> errors.StatusError:
    """Return 410 for a token whose revision is compacted, with a token for an inconsistent continuation at `start`."""
    error = errors.expired(_INCONSISTENT)
    error.list_metadata = {"continue": encode_continue_token(-1, start)}
    return error


def encode_continue_token(revision: int, start: str) -> str:
    """Encode the revision of a list and the first key of the next page."""
    token = msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": revision, "start": start})
    return urlsafe_b64encode(token).rstrip(b"=").decode()


def decode_continue_token(token: str) -> tuple[int, str]:
    """Return (revision, first key); revision -1: an inconsistent continuation. Raises StatusError 400."""
    try:
        if "=" in token or not _URL_BASE64.fullmatch(token):
            valid_prefix = _URL_BASE64.match(token)
            raise ValueError(f": illegal base64 data at input byte {valid_prefix.end() if valid_prefix else 0}")
        try:
            text = urlsafe_b64decode(token + "=" * (-len(token) % 4))
        except Base64Error as error:
            raise ValueError(f": illegal base64 data at input byte {len(token) - 1}") from error
        if message := go_json_error(text):
            raise ValueError(f": {message}")
        decoded = msgspec.json.decode(text)
        if not isinstance(decoded, dict):
            kind = json_kind(decoded)
            raise ValueError(f": json: cannot unmarshal {kind} into Go value of type storage.continueToken")
        version, revision, start = decoded.get("v", ""), decoded.get("rv", 0), decoded.get("start", "")
        if type(revision) is not int or type(start) is not str:
            raise ValueError(": json: cannot unmarshal")
        if not -(2**63) <= revision < 2**63:
            field = "Go struct field continueToken.rv of type int64"
            raise ValueError(f": json: cannot unmarshal number {revision} into {field}")
        if version != "meta.k8s.io/v1":
            raise ValueError(f": server does not recognize this encoded version {version}")
        if not revision:
            raise ValueError(": incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
        if not start:
            raise ValueError(": encoded start key empty (version meta.k8s.io/v1)")
        if normpath(f"/{start.removeprefix('/')}") != f"/{start.removeprefix('/')}":
            raise ValueError(f": {start}")
    except ValueError as error:
        raise errors.bad_request(f"invalid continue token: continue key is not valid{error}") from error
    return revision, start


_URL_BASE64 = re.compile(r"[-_A-Za-z0-9]*")
