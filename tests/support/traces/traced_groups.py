"""Pod groups as informers and the scheduler report them to the recorders of traces."""

from __future__ import annotations

from kubeloop.kube.objects import api_types
from kubeloop.kube.objects.workload_types import PodGroup
from kubeloop.tracing.spans.pod_group_record import PodGroupAttemptFacts


def pod_group(name="train", *, uid="group-uid", min_count=2, scheduled=False):
    policy = {"gang": {"minCount": min_count}} if min_count else {"basic": {}}
    return api_types.convert(
        PodGroup,
        {
            "metadata": {"name": name, "namespace": "shop", "uid": uid},
            "spec": {
                "schedulingPolicy": policy,
                "podGroupTemplateRef": {"workload": {"workloadName": "training", "podGroupTemplateName": "workers"}},
            },
            "status": {"conditions": [{"type": "PodGroupScheduled", "status": "True"}] if scheduled else []},
        },
    )


class TracedGroup:
    """A group "shop/train" whose pods are "train-0", "train-1", ..."""

    def __init__(self, tracing, make_pod, clock) -> None:
        self.tracing, self.clock = tracing, clock
        self._make_pod = make_pod

    def pod(self, number, node="", **fields):
        return self._make_pod(f"train-{number}", group="train", node=node, owner="Job", **fields)

    def observe(self, *numbers, node="", **fields):
        for number in numbers:
            pod = self.pod(number, node, **fields)
            self.tracing.pods.observed(pod)
            self.tracing.groups.pod_observed(pod)

    def delete(self, *numbers):
        for number in numbers:
            pod = self.pod(number)
            self.tracing.pods.deleted(pod)
            self.tracing.groups.pod_deleted(pod)

    def attempt(self, result, milliseconds=2, **fields):
        self.tracing.groups.attempt_started("shop/train")
        self.clock.pass_ms(milliseconds)
        self.tracing.groups.attempt_finished("shop/train", PodGroupAttemptFacts(result, **fields))

    def bind(self, *numbers, milliseconds=3):
        for number in numbers:
            self.clock.pass_ms(milliseconds)
            self.observe(number, node="n1")

    async def finished(self, exporter):
        """Return the traces of groups that have ended, after the time in which further pods may come."""
        self.clock.pass_ms(1_100)
        await self.tracing.flush()
        self.tracing.groups.check()
        return [trace for trace in exporter.traces if trace.root.name == "pod group"]
