"""Number of feasible nodes to find, FitError messages and event notes, compared with kube-scheduler."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kubeloop.kube.events.event_aggregation import event_note
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.attempts.algorithm import num_feasible_nodes_to_find
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.fit_error import Diagnosis, FitError, NodeToStatus


def fit_error(record: dict[str, Any]) -> FitError:
    node_to_status = NodeToStatus(Snapshot())
    number = 0
    for entry in record.get("nodeReasons") or []:
        for _ in range(entry["nodes"]):
            node_to_status.set(f"node-{number}", Status(Code.UNSCHEDULABLE, tuple(entry["reasons"])))
            number += 1
    other = record.get("otherNodesReason")
    node_to_status.absent = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (other,) if other else ())
    diagnosis = Diagnosis(
        node_to_status,
        pre_filter_message=record.get("preFilterMessage", ""),
        post_filter_message=record.get("postFilterMessage", ""),
    )
    return FitError(record["numAllNodes"], diagnosis)


def test_messages_and_numbers_match_kube_scheduler(records):
    counts: Counter[str] = Counter()
    for record in records("scheduler/selecthost.jsonl.gz"):
        if record["type"] == "numFeasibleNodesToFind":
            percentage = record.get("profilePercentageOfNodesToScore", record["percentageOfNodesToScore"])
            assert num_feasible_nodes_to_find(record["nodes"], percentage) == record["result"], record
        elif record["type"] == "fitError":
            message = str(fit_error(record))
            assert message == record["message"]
            assert event_note(message) == record["eventNote"]
        else:
            note = bytes.fromhex(record["noteHex"])
            assert len(note) == record["noteBytes"]
            assert event_note(record["message"]) == note.decode(errors="replace")  # JSON has no cut characters
        counts[record["type"]] += 1
    assert counts
