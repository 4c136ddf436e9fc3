"""kube-scheduler: scheduling queue, cache, plugin framework, in-tree plugins and the scheduling loop.

May import `kubeloop.tracing`, `kubeloop.informers`, `kubeloop.kube` and `kubeloop.cel`; not the controllers. Inside,
each layer imports only layers below it:

- explain: why a pod is pending, and the cache debugger
- legacy_policy: Policy documents, and plugins of older schedulers; nothing else in the scheduler imports it
- scheduler: the composition root and the scheduling loop
- pod_groups: one attempt to schedule all pods of a group
- attempts: one attempt to schedule a pod: scheduling cycle, choice of a node, binding cycle, failures
- event_handlers: watch events
- plugin_handle, scheduler_gauges: the scheduler as plugins and metrics see it
- extenders: HTTP extenders
- plugins: the in-tree plugins and their registry
- framework: runs the plugins of a profile at their extension points
- queue: the scheduling queue, backoff, queueing hints, nominated pods
- api: what the author of a plugin imports
- devices: allocation of devices to ResourceClaims
- cache, config: nodes, pods and the snapshot; KubeSchedulerConfiguration
- api_calls: API calls about pods in the background: bindings, writes of pod status
- context, lister_resources: what the process provides; which resources have informers
- metrics: what is measured
"""
