"""Workloads in the format of kube-scheduler's scheduler_perf: reading them, running them, summing up what they show.

Source: test/integration/scheduler_perf of Kubernetes v1.36. `../scheduler` is the command.
"""
