"""Files of the data directory in addition to the objects: token, certificate and signing key.

They keep a kubeconfig and service account tokens valid across restarts.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from kubeloop.kube.errors import UserError

FOLDER_MODE, FILE_MODE = 0o700, 0o600


def read_or_create(path: Path, create: Callable[[], bytes], is_good: Callable[[bytes], bool] = bool) -> bytes:
    """Return the content of a file; if it is missing or invalid, create it with mode 0600.

    Raises UserError if the folder or the file cannot be used.
    """
    try:
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        if path.exists() and is_good(content := path.read_bytes()):
            return content
        content = create()
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE), "wb") as file:
            file.write(content)
        draft.replace(path)
    except OSError as error:
        raise UserError(
            f"cannot use the data directory {path.parent}: {path.name}: {error.strerror}",
            hint="name a folder you may write to",
        ) from None
    return content


def read_or_create_token(folder: Path | None) -> str:
    """Return the administrator's bearer token of the data directory `folder`, or a new one. Raises UserError."""
    if folder is None:
        return secrets.token_urlsafe(32)
    return read_or_create(folder / "token", lambda: secrets.token_urlsafe(32).encode()).decode()
