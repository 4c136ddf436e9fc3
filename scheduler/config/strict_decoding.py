"""Decode a configuration document into its types, with kube-scheduler's message for a field that it does not have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from kubeloop.kube.objects.api_types import JSONValue, without_nulls
from kubeloop.kube.user_error import UserError

T = TypeVar("T")


class StrictStruct(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A type of a document."""


_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>[^`]*)`(?: - at `\$\.?(?P<path>[^`]*)`)?")


def decode_strictly(document: Mapping[str, JSONValue], type_: type[T], *, name: str, hint: str) -> T:
    """Return the document as a `type_`, whose fields are all that it may have. name: of the document, for errors.

    Raises UserError with the path of the field.
    """
    try:
        return msgspec.convert(without_nulls(dict(document)), type_)
    except msgspec.ValidationError as error:
        text = str(error)
    unknown = _UNKNOWN.match(text)
    if unknown is None:
        raise UserError(f"cannot read {name}: {text.replace('$.', '')}", hint=hint)
    path = f"{unknown['path']}." if unknown["path"] else ""
    raise UserError(f'strict decoding error: unknown field "{path}{unknown["field"]}"', hint=hint)
