"""What a server keeps of itself beside its data: token, certificate and signing key.

With them, a kubeconfig and the tokens of service accounts are good after a restart, as those of a real cluster are.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from kubeloop.kube.errors import UserError

FOLDER_MODE, FILE_MODE = 0o700, 0o600


def kept(path: Path, make: Callable[[], bytes], is_good: Callable[[bytes], bool] = bool) -> bytes:
    """The content of a file; where there is none, or none that is good, of one that is made now, for its owner only.

    Raises UserError if the folder or the file cannot be used.
    """
    try:
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        if path.exists() and is_good(content := path.read_bytes()):
            return content
        content = make()
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


def administrator_token(folder: Path | None) -> str:
    """A bearer token: that of the server whose data is in `folder`, or a new one. Raises UserError."""
    if folder is None:
        return secrets.token_urlsafe(32)
    return kept(folder / "token", lambda: secrets.token_urlsafe(32).encode()).decode()
