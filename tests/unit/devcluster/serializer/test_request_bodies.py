"""Parsing of request bodies: unpaired surrogates and duplicate fields."""

from __future__ import annotations

from kubeloop.devcluster.serializer.request_bodies import merge_strict_errors, parse_json


def test_unpaired_surrogates_are_replaced():
    value, _ = parse_json(rb'{"a": "\ud800", "b": "\ud83d\ude00", "c": "\\ud800"}')
    assert value == {"a": "\ufffd", "b": "\U0001f600", "c": r"\ud800"}


def test_duplicate_fields_are_merged_and_reported():
    value, errors = parse_json(b'{"a": {"b": 1}, "c": [{"d": 1, "d": 2}], "a": {"e": 2}}')
    assert value == {"a": {"b": 1, "e": 2}, "c": [{"d": 2}]}
    assert sorted(errors) == ['duplicate field "a"', 'duplicate field "c[0].d"']


def test_unknown_fields_are_not_reported_as_duplicates():
    duplicates = ['duplicate field "spec.foo"', 'duplicate field "spec.foo.bar"', 'duplicate field "spec.a"']
    assert merge_strict_errors(duplicates, ['unknown field "spec.foo"']) == [
        'duplicate field "spec.a"', 'unknown field "spec.foo"'
    ]  # fmt: skip
