"""Parts shared by all controllers.

May import `kubeloop.tracing`, `kubeloop.informers` and `kubeloop.kube`; not the packages of single controllers.

Loop: which keys are reconciled, when, and when again

    controller_context.py       everything that a controller is created with
    controller.py               workers that take keys from a queue and reconcile them
    cached_reconcile.py         begin and end of the reconcile of a cached object
    work_queue.py               keys to reconcile, and the reasons
    rate_limiter.py             delay before a retry
    reconcile_pace.py           when reconciles begin: the scheduler of the process goes first
    metrics_interface.py        protocols of the metrics

Caches that lag behind own writes

    expectations.py             creations and deletions that were requested and are not observed yet
    consistency.py              newest versions written, compared with those of the caches
    status_delay.py             status writes that own pending writes are about to make obsolete
    status_write.py             write of a status, with one retry
    status_patch.py             patches that conflict in the same cases as updates

Owners and revisions

    owner_references.py         controller references, and the index of the objects of an owner
    owner_queue.py              owners that a changed object enqueues
    adoption.py                 objects that an owner adopts and releases
    controller_history.py       ControllerRevisions
    name_hash.py                hashes in names and labels

Pods

    pod_template.py             JSON of a Pod from a template
    pod_template_hash.py        equality and hash of templates
    pod_control.py              creation and deletion, with events and traces
    slow_start.py               creation in batches of 1, 2, 4, ...
    pod_availability.py         active, terminating and available Pods
    active_pods.py              order of deletion
    disruption_target.py        the condition DisruptionTarget
    volume_claims.py            claims that a Pod uses

Services

    service_events.py           Services that a changed Service or Pod enqueues
    service_pods.py             Pods of a Service, their ports and times of change
    subset_packing.py           subsets of Endpoints, one per set of ports
    endpoint_slices.py          labels of EndpointSlices, identity of their ports and endpoints
    managed_slices.py           EndpointSlices of one controller: changes of others, own writes
    slice_tracker.py            own writes of EndpointSlices that the cache may not show yet

Objects of any kind

    served_resources.py         resources that the API server serves, for lookups
    rediscovery.py              when they are discovered again, for controllers that watch all
    partial_object_metadata.py  resources read as PartialObjectMetadata

    integers.py                 integers and percentages as Go reads them
"""
