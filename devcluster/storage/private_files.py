"""Files that other users of the machine cannot read, among them those of the data directory beside its objects.

These are the token, the certificates and the signing keys; they keep kubeconfigs and service account tokens valid
across restarts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from kubeloop.kube.user_error import UserError

FOLDER_MODE, FILE_MODE = 0o700, 0o600
SERVICE_ACCOUNT_KEY, CERTIFICATE_AUTHORITY = "service-account.key", "ca.pem"


def check_owner(path: Path) -> None:
    """Raise UserError if another user than root owns `path` and could change it."""
    owner = path.stat().st_uid
    if owner not in (0, os.getuid()):
        raise UserError(f"{path} belongs to another user (uid {owner})", hint="name a folder of your own")


def write_private_file(path: Path, content: bytes, *, replaces: bool = True) -> None:
    """Replace the file atomically by one with mode 0600. Raises OSError.

    replaces: False leaves a file that another process has created meanwhile, where the file system has hard links.

    The draft is a new file under a random name: in a folder such as /tmp, another user can neither prepare nor open it.
    """
    import tempfile  # not needed at the start of `kubeloop up`

    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        if not replaces:
            with contextlib.suppress(OSError):
                os.link(draft, path)
            if path.exists():
                Path(draft).unlink()
                return
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def read_or_create(path: Path, create: Callable[[], bytes], is_good: Callable[[bytes], bool] = bool) -> bytes:
    """Return the content of a file; if it is missing or invalid, create it with mode 0600.

    Raises UserError if the folder or the file cannot be used.
    """
    try:
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        check_owner(path.parent)
        exists = path.exists()
        if exists and is_good(content := path.read_bytes()):
            return content
        content = create()
        write_private_file(path, content, replaces=exists)
        return path.read_bytes()
    except OSError as error:
        raise UserError(
            f"cannot use the data directory {path.parent}: {path.name}: {error.strerror}",
            hint="name a folder you may write to",
        ) from None


def read_or_create_token(folder: Path | None) -> str:
    """Return the administrator's bearer token of the data directory `folder`, or a new one. Raises UserError."""
    if folder is None:
        return _new_token()
    return read_or_create(folder / "token", lambda: _new_token().encode()).decode()


def _new_token() -> str:
    return os.urandom(32).hex()  # secrets.token_hex(), without an import that takes 3 ms before the cluster's start
