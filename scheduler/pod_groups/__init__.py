"""Scheduling of pod groups: all members of a PodGroup in one cycle.

    pod_group_cycle.py    the cycle: chooses nodes for the members, one placement after the other
    group_result.py       what a cycle means for the group and its members
    group_conditions.py   the condition of the PodGroup
    attempt_facts.py      facts of an attempt, for its trace and `kubeloop explain podgroup/NAME`

The plugins of pod groups are in `plugins`, the live state of each group in `cache.pod_groups`.
"""
