"""Feed of the browser page and of `kubeloop trace --watch`: lines of the pods that changed since the last poll.

Without polls there is no cost: the feed registers no handlers and compares when it is polled. A response is bounded
(`MAX_LINES` lines), a comparison serves all polls within `COMPARE_SECONDS`, and both run in slices, so that other tasks
of the event loop, such as scheduling, are not delayed.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from kubeloop.informers.store import Store
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.object_fields import controller_of
from kubeloop.kube.values.integers import parse_integer
from kubeloop.tracing.recording.recent_traces import RecentTraces
from kubeloop.tracing.spans.owners import POD_GROUP, deployment_name, owner_text
from kubeloop.tracing.spans.pod_record import PodRecord
from kubeloop.tracing.views.feed_response import FeedResponse
from kubeloop.tracing.views.pod_lines import PodLine, pod_line

MAX_PODS: Final = 150_000  # pods compared: all recent traces, and pods without a trace
MAX_LINES: Final = 500  # lines in one response, some 150 KB and 25 ms
COMPARE_SECONDS: Final = 0.5
_COMPARED_PER_SLICE: Final = 1_000  # pods compared before other tasks run: about 1 ms
_LINES_PER_SLICE: Final = 40  # lines built before other tasks run: about 2 ms
_FEW_CHANGES: Final = 2 * MAX_LINES  # of more, all entries are searched
_MAX_REMOVED: Final = 10_000


class _Entry:
    """State of a pod at its last comparison. `version`: of its last change."""

    __slots__ = ("facts", "pod", "record", "version")

    def __init__(self) -> None:
        self.version = 0
        self.record: PodRecord | None = None
        self.facts: tuple[object, ...] = ()
        self.pod: Pod | None = None


class PodFeed:
    """The pods of one process, each with the version of its last change. Any number of tasks may call `poll()`.

    Versions only grow. _entries is in order of version: a changed pod moves to the end.
    """

    def __init__(
        self,
        recent: RecentTraces,
        pods: Store[Pod],
        *,
        now_ns: Callable[[], int],
        instance: str,
        max_pods: int = MAX_PODS,
    ) -> None:
        """`instance` distinguishes this process from an earlier one on the same port."""
        self._recent = recent
        self._pods = pods
        self._now_ns = now_ns
        self._instance = instance
        self._max_pods = max_pods
        self._entries: dict[str, _Entry] = {}
        self._removed: deque[tuple[int, str]] = deque(maxlen=_MAX_REMOVED)
        self._ordered: list[tuple[int, str, _Entry]] = []  # _entries with their versions, when last polled
        self._version = self._ordered_version = 0
        self._dropped_version = 0  # removals up to this version were dropped
        self._compared_at = float("-inf")
        self._comparing = asyncio.Lock()

    async def poll(
        self, cursor: str = "", *, limit: int = MAX_LINES, selects: LineSelector = lambda line: True
    ) -> FeedResponse:
        """Return changes since `cursor` ("": everything): at most `limit` lines, of pods that `selects` accepts."""
        await self._compare_all()
        since, reset = self._parse_cursor(cursor)
        limit = max(1, min(limit, MAX_LINES))
        changed = self._changed_since(since)
        lines: list[PodLine] = []
        last_version = self._version
        more = len(changed) > limit
        for number, (version, key, entry) in enumerate(changed[:limit]):
            line = self._line(key, entry)
            if line is not None and selects(line):
                lines.append(line)
            if more:
                last_version = version
            if number % _LINES_PER_SLICE == _LINES_PER_SLICE - 1:
                await asyncio.sleep(0)  # later changes get a higher version and are returned by the next poll
        removed = [] if reset else [key for version, key in self._removed if since < version <= last_version]
        return FeedResponse(
            cursor=f"{self._instance}-{last_version}",
            reset=reset,
            more=more,
            lines=lines,
            removed=removed,
            now_us=self._now_ns() // 1000,
            pods=len(self._pods),
            remaining=max(0, len(changed) - limit),
        )

    def document(self, key: str) -> dict[str, Any] | None:
        """Return the whole trace of the pod with this key; None if there is none."""
        entry = self._entries.get(key)
        return self._recent.document(entry.record) if entry is not None and entry.record is not None else None

    def pod(self, key: str) -> Pod | None:
        entry = self._entries.get(key)
        return entry.pod if entry is not None else None

    def check(self) -> None:
        versions = [entry.version for entry in self._entries.values()]
        assert versions == sorted(set(versions))
        assert all(version <= self._version for version in versions)

    def _parse_cursor(self, cursor: str) -> tuple[int, bool]:
        """Return the version of a cursor, and True if the client must start over."""
        instance, _, version = cursor.rpartition("-")
        if instance != self._instance or not version.isascii() or not version.isdigit():
            return 0, True
        since = parse_integer(version)
        if since < self._dropped_version or since > self._version:
            return 0, True
        return since, False

    def _changed_since(self, since: int) -> list[tuple[int, str, _Entry]]:
        """Return entries changed since a version, in order of change, with their current versions."""
        newest_first: list[tuple[int, str, _Entry]] = []
        for key, entry in reversed(self._entries.items()):
            if entry.version <= since:
                return newest_first[::-1]
            if len(newest_first) == _FEW_CHANGES:
                break
            newest_first.append((entry.version, key, entry))
        # a client that loads everything polls the same state many times
        if self._ordered_version != self._version:
            self._ordered = [(entry.version, key, entry) for key, entry in self._entries.items()]
            self._ordered_version = self._version
        return self._ordered[bisect_right(self._ordered, since, key=lambda item: item[0]) :]

    async def _compare_all(self) -> None:
        """Compare all pods with their last state, unless that was done within COMPARE_SECONDS."""
        loop = asyncio.get_running_loop()
        async with self._comparing:
            if loop.time() - self._compared_at < COMPARE_SECONDS:
                return
            present: set[str] = set()
            for number, (key, record, pod) in enumerate(self._all_pods()):
                self._compare(key, record, pod)
                present.add(key)
                if number % _COMPARED_PER_SLICE == _COMPARED_PER_SLICE - 1:
                    await asyncio.sleep(0)  # later changes are found now or by the next comparison
            for key in [key for key in self._entries if key not in present]:
                del self._entries[key]
                self._version += 1
                if len(self._removed) == _MAX_REMOVED:
                    self._dropped_version = self._removed[0][0]
                self._removed.append((self._version, key))
            self._compared_at = loop.time()

    def _all_pods(self) -> Iterator[tuple[str, PodRecord | None, Pod | None]]:
        """Yield every trace with its pod, then the pods without a trace; the newest traces if there are too many.

        Iterates over copies, because the caller awaits in between.
        """
        records = [*self._recent.records()][-self._max_pods :]
        pods = self._pods
        traced: set[str] = set()
        for record in records:
            pod = pods.get(f"{record.namespace}/{record.name}")
            if pod is not None and pod.metadata.uid != record.uid:
                pod = None  # another pod of the same name
            if record.uid:
                traced.add(record.uid)
            yield record.span_id, record, pod
        room = self._max_pods - len(records)
        if room > 0:
            untraced = (pod for pod in pods.list() if pod.metadata.uid not in traced)
            yield from ((pod.metadata.uid, None, pod) for pod in islice(untraced, room))

    def _compare(self, key: str, record: PodRecord | None, pod: Pod | None) -> None:
        entry = self._entries.get(key)
        facts: tuple[object, ...] = ()
        if record is not None:
            facts = (
                *(len(record.facts), record.finished_facts),
                *(record.observed_ns, record.create_end_ns, record.bound_ns, record.end_ns),
            )
        if entry is None:
            entry = _Entry()
        elif entry.record is record and entry.pod is pod and entry.facts == facts:
            return
        else:
            del self._entries[key]
        self._version += 1
        entry.version, entry.record, entry.pod, entry.facts = self._version, record, pod, facts
        self._entries[key] = entry

    def _line(self, key: str, entry: _Entry) -> PodLine | None:
        if entry.record is None:
            return None if entry.pod is None else untraced_line(key, entry.pod)
        line = pod_line(self._recent.document(entry.record))
        if (
            line is not None
            and not entry.record.is_observed
            and line.stage in ("bound", "starting", "ready", "completed")
        ):
            line.stage = "gone" if entry.pod is None else stage_on_node(entry.pod)
            if entry.pod is not None:
                line.stage_after_us = max(line.stage_after_us, stage_start_us(entry.pod) - line.start_us)
        return line


LineSelector = Callable[[PodLine], bool]


def stage_on_node(pod: Pod) -> str:
    """Return the stage of a pod that has a node: starting, running, ready, completed, failed, terminating."""
    if pod.metadata.deletion_timestamp is not None:
        return "terminating"
    match pod.status.phase:
        case "Succeeded":
            return "completed"
        case "Failed":
            return "failed"
        case "Running":
            ready = any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)
            return "ready" if ready else "running"
    return "starting"


def stage_start_us(pod: Pod) -> int:
    """Return when the pod's last condition of those that decide on its stage changed, in whole seconds; 0: unknown."""
    times = (
        condition.last_transition_time
        for condition in pod.status.conditions
        if condition.type in ("PodScheduled", "Ready") and condition.last_transition_time is not None
    )
    return max((int(time.timestamp()) * 1_000_000 for time in times), default=0)


def untraced_line(key: str, pod: Pod) -> PodLine:
    """Return a line from the object alone, in whole seconds: for a pod not sampled, or bound before this process."""
    metadata = pod.metadata
    scheduled = next((condition for condition in pod.status.conditions if condition.type == "PodScheduled"), None)
    created = metadata.creation_timestamp
    created_to_scheduled_us = 0
    if created is not None and scheduled is not None and scheduled.last_transition_time is not None:
        created_to_scheduled_us = round((scheduled.last_transition_time - created).total_seconds() * 1e6)
    rejected = scheduled is not None and scheduled.status == "False"
    owner = controller_of(metadata)
    owners = []
    if owner is not None:
        deployment = deployment_name(owner.kind, owner.name, metadata.labels.get("pod-template-hash", ""))
        owners = [owner_text("Deployment", deployment)] if deployment else []
        owners.append(owner_text(owner.kind, owner.name))
    if pod.spec.scheduling_group is not None:
        owners.append(owner_text(POD_GROUP, pod.spec.scheduling_group.pod_group_name or ""))
    start_us = int(created.timestamp()) * 1_000_000 if created is not None else 0
    return PodLine(
        key=key,
        trace_id="",
        namespace=metadata.namespace,
        name=metadata.name,
        start_us=start_us,
        duration_us=max(0, created_to_scheduled_us) if pod.spec.node_name else 0,
        stage=stage_on_node(pod) if pod.spec.node_name else "unschedulable" if rejected else "queued",
        stage_after_us=max(0, stage_start_us(pod) - start_us),
        owner=owners[0] if owners else "",
        lower_owners=owners[1:],
        node=pod.spec.node_name,
        reason=(scheduled.message or scheduled.reason) if scheduled is not None and rejected else "",
        is_open=not pod.spec.node_name,
    )
