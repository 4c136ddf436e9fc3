"""kube-scheduler: scheduling queue, cache, plugin framework, in-tree plugins and the scheduling loop.

May import `kubeloop.tracing`, `kubeloop.informers` and `kubeloop.kube`; not the controllers. Inside, each layer imports
only layers below it:

- explain: why a pod is pending, and the cache debugger
- scheduler: the scheduling loop, and the composition root
- algorithm, event_handlers, plugin_handle, scheduler_gauges, status_patches: the parts of the loop
- extender, full_objects: HTTP extenders
- plugins: the in-tree plugins and their registry
- framework: runs the plugins of a profile at their extension points
- queue: the scheduling queue, backoff, queueing hints, nominated pods
- api: what the author of a plugin imports
- cache, config: nodes, pods and the snapshot; KubeSchedulerConfiguration and Policy files
- metrics_protocol, lister_resources: what is measured; which resources have informers
"""
