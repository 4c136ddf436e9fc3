"""Allocation of devices to ResourceClaims (dynamic resource allocation).

Imported with the first pod that has claims or requests an extended resource. The search is a pure function of pools,
usage and claims:

    cluster_devices.py      informers and shared state of all profiles
    cluster/                devices of the cluster, their taints and their use
    selectors.py            CEL selectors
    constraints.py          matchAttribute and distinctAttribute
    capacity.py             consumable capacity
    requests.py             requests of the claims of one pod, checked
    extended_resources.py   extended resources that classes provide, and the special claim for them
    class_devices.py        number of devices of a class on a node
    allocator.py            search for devices on one node
    node_results.py         search results per node, kept for pods with the same requests
    node_allocatable.py     resources of the node that claims take
    allocation_results.py   the allocation as it is written to a claim
    binding_conditions.py   conditions that a driver must report before a pod is bound
    explanation.py          why no node has the requested devices
    errors.py               errors that end an attempt

May import `kube`, `cel`, `informers` and `scheduler.cache`. Source: staging/src/k8s.io/dynamic-resource-allocation
of v1.36.
"""
