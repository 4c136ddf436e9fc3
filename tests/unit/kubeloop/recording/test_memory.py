"""kubeloop/recording/memory.py: a cluster that is larger than memory."""

from __future__ import annotations

import resource

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.recording import memory
from kubeloop.recording.memory import (
    DECODED_PER_BYTE,
    MEMORY_PER_BYTE,
    REPLAY_PER_BYTE,
    MemoryLimit,
    _mapped_bytes,
    available_memory,
)


def test_cluster_larger_than_memory_is_refused_with_its_file():
    limit = MemoryLimit("day.kubeloop", available=MEMORY_PER_BYTE * 1_000)
    limit.add(600)
    limit.release(500)
    limit.add(900)
    with pytest.raises(UserError, match=r"day\.kubeloop: the cluster is larger than memory"):
        limit.add(1)


def test_available_memory_is_positive_and_at_most_that_of_the_machine():
    assert 0 < available_memory() < 1 << 50


def test_decoded_json_needs_less_memory_than_objects_of_a_cluster():
    limit = MemoryLimit("day.kubeloop", available=1_000 * DECODED_PER_BYTE)
    limit.add(1_000, decoded_only=True)
    with pytest.raises(UserError):
        limit.add(1, decoded_only=True)


def test_replay_needs_more_memory_than_a_plan():
    limit = MemoryLimit("day.kubeloop", available=1_000 * MEMORY_PER_BYTE, per_byte=REPLAY_PER_BYTE)
    with pytest.raises(UserError):
        limit.add(1_000)


def test_available_memory_is_what_the_container_does_not_use(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text(f"{3 << 20}\n")
    assert available_memory() == 3 << 20
    (tmp_path / "memory.current").write_text(f"{2 << 20}\n")
    (tmp_path / "memory.stat").write_text(f"anon {1 << 20}\ninactive_file {1 << 19}\n")
    assert available_memory() == (1 << 20) + (1 << 19)
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory() > 3 << 20


def test_available_memory_is_at_most_that_of_ulimit(monkeypatch):
    mapped = _mapped_bytes()
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (mapped + (8 << 20), -1))
    assert 0 < available_memory() <= 8 << 20
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1 << 20, -1))
    assert available_memory() == 0
