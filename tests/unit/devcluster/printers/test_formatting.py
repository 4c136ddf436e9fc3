"""Formatting of shared cells: ages, labels, selectors, containers, shortened lists."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kubeloop.devcluster.printers.formatting import (
    age_since,
    human_duration,
    join_first,
    labels_text,
    selector_text,
)

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)


def test_age_without_a_timestamp_is_unknown():
    assert age_since(None, NOW) == "<unknown>"
    assert age_since("2026-05-01T11:54:30Z", NOW) == "5m30s"


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(hours=7, minutes=59), "7h59m"),
        (timedelta(hours=8, minutes=59), "8h"),
        (timedelta(days=7, hours=23), "7d23h"),
        (timedelta(days=8, hours=23), "8d"),
        (timedelta(days=2 * 365 + 1), "2y1d"),
        (timedelta(days=8 * 365 + 1), "8y"),
    ],
)
def test_long_durations_have_at_most_two_units(duration, text):
    assert human_duration(duration.total_seconds()) == text


def test_labels_are_sorted_by_key():
    assert labels_text({"tier": "front", "app": "web"}) == "app=web,tier=front"
    assert labels_text({}) == "<none>"


def test_selector_has_labels_and_expressions():
    selector = {
        "matchLabels": {"app": "web"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["b", "a"]},
            {"key": "zone", "operator": "DoesNotExist"},
        ],
    }
    assert selector_text(selector) == "app=web,tier in (a,b),!zone"


def test_selector_with_an_unknown_operator_is_invalid():
    assert selector_text({"matchExpressions": [{"key": "app", "operator": "Gt", "values": ["1"]}]}) == "<invalid>"


def test_unset_selector_is_empty_text():
    assert selector_text(None) == ""


def test_long_list_ends_with_the_number_of_other_entries():
    assert join_first(["a", "b", "c", "d", "e"], 3, "<unset>") == "a,b,c + 2 more..."
    assert join_first(["a", "b", "c"], 3, "<unset>") == "a,b,c"
    assert join_first([], 3, "<unset>") == "<unset>"
