"""Plugins of pod groups.

    gang_scheduling.py          GangScheduling: when the pods of a gang are queued, wait and are bound
    topology_placement.py       TopologyPlacementGenerator: sets of nodes in one topology domain
    pod_group_pods_count.py     PodGroupPodsCount: score of a placement

Source: plugins/{gangscheduling,topologyaware,podgrouppodscount} of v1.36.
"""
