"""Cycle state: values of plugins, and clones for dry runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from kubeloop.scheduler.api.cycle_state import CycleState


@dataclass
class Counts:
    value: int = 0

    def clone(self) -> Counts:
        return replace(self)


def test_read_of_unwritten_key_raises() -> None:
    state = CycleState()
    with pytest.raises(KeyError):
        state.read("a")
    assert state.get("a") is None
    state.write("a", 1)
    assert (state.read("a"), state.get("a")) == (1, 1)


def test_clone_copies_cloneable_values_and_shares_others() -> None:
    state, shared = CycleState(measured=True), [1]
    state.write("counts", Counts(1))
    state.write("shared", shared)
    clone = state.clone()
    clone.read("counts").value = 2
    clone.write("new", 1)
    assert state.read("counts") == Counts(1)
    assert clone.read("shared") is shared
    assert state.get("new") is None
    assert clone.measured


def test_skipped_plugins_of_clone_are_independent() -> None:
    state = CycleState()
    for skipped in (state.skip_filter, state.skip_score, state.skip_pre_bind):
        skipped.add("A")
    clone = state.clone()
    for skipped in (clone.skip_filter, clone.skip_score, clone.skip_pre_bind):
        skipped.add("B")
    assert [state.skip_filter, state.skip_score, state.skip_pre_bind] == [{"A"}] * 3
    assert [clone.skip_filter, clone.skip_score, clone.skip_pre_bind] == [{"A", "B"}] * 3
