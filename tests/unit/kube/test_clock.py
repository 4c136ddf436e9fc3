"""Formats of times."""

from datetime import UTC, datetime

import pytest

from kubeloop.kube.clock import rfc3339, rfc3339_micro


@pytest.mark.parametrize(
    ("moment", "seconds", "micro"),
    [
        (datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC), "2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000000Z"),
        (datetime(2026, 1, 31, 12, 0, 0, 999_999, UTC), "2026-01-31T12:00:00Z", "2026-01-31T12:00:00.999999Z"),
        (datetime(1, 2, 3, 4, 5, 6, 7, UTC), "0001-02-03T04:05:06Z", "0001-02-03T04:05:06.000007Z"),
    ],
)
def test_times_are_formatted_as_in_kubernetes(moment, seconds, micro):
    assert (rfc3339(moment), rfc3339_micro(moment)) == (seconds, micro)
