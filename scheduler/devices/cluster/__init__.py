"""Devices of the cluster, their taints and their use: from ResourceSlices, DeviceTaintRules and ResourceClaims.

Part of `kubeloop.scheduler.devices`, which states what it may import.

    claim_cache.py          claims, with allocations that are not written yet
    device_usage.py         allocated devices and consumed capacity
    device_pools.py         pools of devices that a node can use
    rule_taints.py          taints of DeviceTaintRules
"""
