"""Services: their Pods, and the Endpoints and EndpointSlices of these.

Part of `kubeloop.controllers.runtime`, which states what it may import.

    service_events.py     Services that a changed Service or Pod enqueues
    service_pods.py       Pods of a Service, their ports and times of change
    subset_packing.py     subsets of Endpoints, one per set of ports
    endpoint_slices.py    labels of EndpointSlices, identity of their ports and endpoints
    managed_slices.py     EndpointSlices of one controller: changes of others, own writes
    slice_tracker.py      own writes of EndpointSlices that the cache may not show yet
    slice_metrics.py      metrics that the controllers of EndpointSlices share
"""
