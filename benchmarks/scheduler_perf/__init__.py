"""Workloads in the format of kube-scheduler's scheduler_perf: parsing, execution and evaluation.

Source: test/integration/scheduler_perf of Kubernetes v1.36. `../scheduler` is the command.
"""
