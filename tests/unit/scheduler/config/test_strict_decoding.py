"""Strict decoding of configuration documents."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.scheduler.config.strict_decoding import decode_strictly


class Item(msgspec.Struct, forbid_unknown_fields=True):
    name: str = ""


class Document(msgspec.Struct, forbid_unknown_fields=True):
    items: tuple[Item, ...] = ()


def decode(document: dict[str, Any]) -> Document:
    return decode_strictly(document, Document, name="the document", hint="see its fields")


def test_nulls_count_as_missing():
    assert decode({"items": [{"name": None}]}) == Document((Item(),))


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        pytest.param({"item": []}, 'strict decoding error: unknown field "item"', id="unknown field"),
        pytest.param(
            {"items": [{}, {"nam": ""}]}, 'strict decoding error: unknown field "items[1].nam"', id="nested field"
        ),
        pytest.param(
            {"items": [{"name": 1}]},
            "cannot read the document: Expected `str`, got `int` - at `items[0].name`",
            id="type",
        ),
    ],
)
def test_errors_name_the_field(document, problem):
    with pytest.raises(UserError) as error:
        decode(document)
    assert (str(error.value), error.value.hint) == (problem, "see its fields")
