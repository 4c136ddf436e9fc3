"""Faults as clauses: "after a crash between the create of Secret a and the status write of Site b"."""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.testing.faults.fault_plan import PlannedFault, cluster_title

_SENTENCES = {
    "crash-at": "after a crash {at:g} s after the start",
    "late-events": "while watch events{of} were up to {seconds:g} s late",
    "late-lists": "while lists{of} took up to {seconds:g} s",
    "switch-server": "while the API server that sends events{of} was {seconds:g} s behind",
    "old-lists": "after a restart with lists{of} that were {seconds:g} s old",
    "blind": "after watches{of} had missed the events of {seconds:g} s",
    "small-pages": "while lists expired between their pages",
    "slow": "while requests and responses took up to {share:g} s",
    "conflict": "while {share:.0%} of the updates were refused with 409",
    "throttle": "while {share:.0%} of the requests were refused with 429",
    "error": "while {share:.0%} of the requests were refused with 500",
    "lost-answer": "while {share:.0%} of the responses to writes were lost",
    "duplicate": "while {share:.0%} of the writes arrived twice",
    "duplicate-events": "while {share:.0%} of the watch events arrived twice",
    "disconnect": "after {seconds:g} s without a connection",
    "silent": "after watches had been silent for {seconds:g} s",
    "restart-server": "after a restart of the API server that took {seconds:g} s",
    "compact": "after the API server had dropped old versions",
    "clock": "after the clock had jumped by {share:g} s",
    "freeze-leader": "after the leader was cut off for {seconds:g} s and another one took over",
    "delete-object": "after a user deleted an object{of}",
    "replace-object": "after a user deleted an object{of}",
    "touch-object": "after a user annotated an object{of}",
}

_AT_WRITE = {
    "late-events": "while watch events{of} were late from the {title} on",
    "blind": "after watches had missed the events from the {title} on",
    "old-lists": "after a restart with lists from the time of the {title}",
    "conflict": "after the {title} was refused with 409",
    "throttle": "after the {title} was refused with 429",
    "error": "after the {title} was refused with 500",
    "lost-answer": "after the response to the {title} was lost",
    "freeze-leader": "after the leader had stopped before the {title}, which arrived when another one led",
}
"""Faults that begin at a write."""


def describe_fault(fault: PlannedFault, titles: Sequence[str]) -> str:
    """Return the fault as a clause. titles: the writes of the run in words, in their order."""
    if fault.kind in ("crash-before", "crash-after"):
        after = fault.write - (fault.kind == "crash-before")  # number of writes that were done
        done = f"the {titles[after - 1]}" if 0 < after <= len(titles) else ""
        due = f"the {titles[after]}" if after < len(titles) else "the next write"
        return f"after a crash between {done} and {due}" if done else f"after a crash before {due}"
    if fault.kind == "crash-late":
        title = titles[fault.write - 1] if fault.write <= len(titles) else "last write"
        return f"after a crash during the {title}, which reached the API server {fault.seconds:g} s later"
    of = f" of {fault.resource}" if fault.resource else ""
    where = f" ({cluster_title(fault.cluster)})" if fault.cluster is not None else ""
    if fault.write and fault.kind in _AT_WRITE:
        return _AT_WRITE[fault.kind].format(of=of, title=titles[fault.write - 1])
    return _SENTENCES[fault.kind].format(of=of, at=fault.at, seconds=fault.seconds, share=fault.share) + where
