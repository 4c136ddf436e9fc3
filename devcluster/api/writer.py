"""Author of a write: field manager and user, and options of a server-side apply."""

from __future__ import annotations

import msgspec

from kubeloop.kube.json_object import JSON


class Writer(msgspec.Struct, frozen=True):
    """The author of a write. manager: field manager (?fieldManager=, else the user agent up to its first slash).

    applied: the object results from server-side apply, which has already updated its managedFields. user: the
    authenticated user, as UserInfo.
    """

    manager: str
    applied: bool = False
    user: JSON = msgspec.field(default_factory=dict)


class ApplyOptions(msgspec.Struct, frozen=True):
    """Options of a server-side apply. force: take fields from other managers. now: timestamp of the write."""

    manager: str
    now: str
    force: bool = False
    subresource: str = ""
