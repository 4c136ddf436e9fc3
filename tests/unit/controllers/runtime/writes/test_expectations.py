"""Expectations of creations and deletions, and when they are met."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kubeloop.controllers.runtime.writes.expectations import EXPECTATIONS_TIMEOUT, Expectations, UIDExpectations
from support.simulation.set_clock import SetClock

KEY = "ns/rs"


@pytest.fixture
def set_clock() -> SetClock:
    return SetClock(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def expectations(set_clock) -> Expectations:
    return Expectations(set_clock)


def test_creations_are_met_when_all_are_observed(expectations):
    assert expectations.met(KEY)
    expectations.expect_creations(KEY, 2)
    expectations.creation_observed(KEY)
    expectations.creation_observed("ns/other")
    assert not expectations.met(KEY)
    expectations.creation_observed(KEY)
    assert expectations.met(KEY)


def test_deletion_counts_once_and_only_for_expected_pod(expectations):
    expectations.expect_deletions(KEY, ["ns/a", "ns/b"])
    for pod in ("ns/a", "ns/a", "ns/other"):
        expectations.deletion_observed(KEY, pod)
    assert not expectations.met(KEY)
    expectations.deletion_observed(KEY, "ns/b")
    assert expectations.met(KEY)


def test_failed_creations_lower_expectation(expectations):
    expectations.expect_creations(KEY, 3)
    expectations.creation_observed(KEY)
    assert not expectations.met(KEY)
    for _ in range(3):  # more observed than expected
        expectations.creation_observed(KEY)
    assert expectations.met(KEY)


def test_unmet_expectation_expires_after_timeout(expectations, set_clock):
    expectations.expect_creations(KEY, 1)
    set_clock.moment += EXPECTATIONS_TIMEOUT
    assert not expectations.met(KEY)
    set_clock.moment += timedelta(seconds=1)
    assert expectations.met(KEY)


def test_forgotten_key_starts_without_expectations(expectations):
    expectations.expect_deletions(KEY, ["ns/a"])
    expectations.forget(KEY)
    assert expectations.met(KEY)
    expectations.expect_creations(KEY, 1)
    expectations.deletion_observed(KEY, "ns/a")  # not expected any more
    expectations.creation_observed(KEY)
    assert expectations.met(KEY)


def test_creations_and_deletions_are_expected_together(expectations):
    expectations.expect(KEY, 1, ["ns/a"])
    expectations.creation_observed(KEY)
    assert not expectations.met(KEY)
    expectations.deletion_observed(KEY, "ns/a")
    assert expectations.met(KEY)


def test_uids_are_pending_until_observed():
    expectations = UIDExpectations()
    expectations.expect(KEY, ["1", "2"])
    expectations.expect(KEY, ["3"])
    expectations.observed(KEY, "2")
    expectations.observed("ns/other", "1")
    assert expectations.pending(KEY) == {"1", "3"}
    expectations.forget(KEY)
    assert expectations.pending(KEY) == frozenset()
