"""Parts shared by all controllers.

May import `kubeloop.tracing`, `kubeloop.informers` and `kubeloop.kube`; not the packages of single controllers.

    controller_context.py   everything that a controller is created with
    controller.py           workers that take keys from a queue and reconcile them
    cached_reconcile.py     begin and end of the reconcile of a cached object
    other_clusters.py       clients and informers of other clusters
    integers.py             integers and percentages as Go reads them
    label_index.py          indexes of Pods by label, and of selectors by a label that they require

    queue/                  work queue: which keys are reconciled, when, and after which delay
    writes/                 own writes that the caches do not show yet, and writes of statuses
    owners/                 owners of objects: references, the owners to enqueue, adoption and release
    revisions/              revisions of a template: ControllerRevisions, and hashes in names and labels
    pods/                   Pods that controllers create, count and delete
    services/               Services: their Pods, and the Endpoints and EndpointSlices of these
    resources/              resources of any kind, for controllers of all of them
"""
