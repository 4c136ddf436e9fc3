"""Users of static tokens (--token-auth-file).

Source: apiserver pkg/authentication/token/tokenfile/tokenfile.go of v1.36.
"""

from __future__ import annotations

import csv
import logging
from pathlib import Path

from kubeloop.kube.json_object import JSON
from kubeloop.kube.user_error import UserError

log = logging.getLogger(__name__)


def read_static_tokens(path: Path) -> dict[str, JSON]:
    """Return the users by token of a CSV file: token, user name, uid and, optionally, groups. Raises UserError."""
    tokens: dict[str, JSON] = {}
    try:
        with path.open(newline="") as file:
            rows = [row for row in csv.reader(file, strict=True) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        problem = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(f"cannot read {path}: {problem}", hint="--token-auth-file takes a CSV file") from None
    for number, row in enumerate(rows, start=1):
        if len(row) < 3:
            raise UserError(
                f"token file '{path}' must have at least 3 columns (token, user name, user uid), found {len(row)}",
                hint="a line of --token-auth-file is 'token,user,uid' or 'token,user,uid,\"group1,group2\"'",
            )
        token, username, uid, *groups = row
        if not token:
            log.warning("empty token has been found in token file '%s', record number '%d'", path, number)
            continue
        if token in tokens:
            log.warning("duplicate token has been found in token file '%s', record number '%d'", path, number)
        user = {"username": username, **({"uid": uid} if uid else {})}
        tokens[token] = {**user, "groups": groups[0].split(",") if groups else []}
    return tokens
