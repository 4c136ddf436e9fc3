"""Back-off between deletions of failed pods."""

from __future__ import annotations

from datetime import timedelta

from kubeloop.controllers.daemonset.failed_pod_backoff import FailedPodBackoff
from support.objects.daemon_sets import NOW


def test_delay_doubles_up_to_fifteen_minutes():
    backoff, now, delays = FailedPodBackoff(), NOW, []
    for _ in range(12):
        backoff.deleted("u", 1, "node", now)
        delays.append(backoff.seconds("u", 1, "node", now))
        now += timedelta(seconds=delays[-1])
        assert backoff.seconds("u", 1, "node", now) == 0
    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]


def test_delay_starts_again_after_half_an_hour_and_with_a_new_generation():
    backoff = FailedPodBackoff()
    for _ in range(3):
        backoff.deleted("u", 1, "node", NOW)
    assert backoff.seconds("u", 1, "node", NOW) == 4
    assert backoff.seconds("u", 1, "other", NOW) == 0
    later = NOW + timedelta(seconds=1801)
    backoff.deleted("u", 1, "node", later)
    assert backoff.seconds("u", 1, "node", later) == 1
    assert backoff.seconds("u", 2, "node", later) == 0


def test_forgotten_daemon_set_has_no_delay():
    backoff = FailedPodBackoff()
    backoff.deleted("u", 1, "node", NOW)
    backoff.forget("u")
    assert backoff.seconds("u", 1, "node", NOW) == 0


def test_delay_still_doubles_exactly_half_an_hour_later():
    backoff = FailedPodBackoff()
    backoff.deleted("u", 1, "node", NOW)
    later = NOW + timedelta(minutes=30)
    backoff.deleted("u", 1, "node", later)
    assert backoff.seconds("u", 1, "node", later) == 2
