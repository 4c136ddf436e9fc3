"""Observation of a cluster that kubeloop does not control: list and watch events become records of pods.

    watch events --> pod_observer --> milestones of a pod --> phases --> PodRecorder

`pod_observer` is the only part with state; the other modules are pure functions of one pod's states and Events. May
import `kubeloop.kube` and, of tracing, `recording` and the layers below.
"""
