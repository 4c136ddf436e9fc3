"""kube-scheduler: scheduling queue, cache, plugin framework, in-tree plugins and the scheduling loop.

May import `kubeloop.tracing`, `kubeloop.informers`, `kubeloop.kube` and `kubeloop.cel`; not the controllers. Inside,
each layer imports only layers below it:

- explain: why a pod is pending, and the cache debugger
- legacy_policy: Policy documents, and plugins of older schedulers; nothing else in the scheduler imports it
- scheduler: the composition root and the scheduling loop
- scheduling_cycle: from the next pod of the queue to its reserved node
- pod_groups: the same for all pods of a group
- attempt_steps: the steps that both cycles share
- event_handlers, algorithm, binding_cycle, failed_attempts: watch events; the choice of a node; the binding of a pod to
  it; the return of a pod to the queue
- plugin_handle, scheduler_gauges: the scheduler as plugins and metrics see it
- attempt, bind_times: what is passed from the scheduling cycle to the binding cycle; durations of bind requests
- extender, full_objects: HTTP extenders
- plugins: the in-tree plugins and their registry
- framework: runs the plugins of a profile at their extension points
- queue: the scheduling queue, backoff, queueing hints, nominated pods
- api: what the author of a plugin imports
- devices: allocation of devices to ResourceClaims
- cache, config: nodes, pods and the snapshot; KubeSchedulerConfiguration
- api_dispatcher: API calls about pods in the background
- context, lister_resources, status_patches: what the process provides; which resources have informers; writes of pod
  status
- background_calls: metrics of API calls that scheduling does not wait for
- metrics_interface: what is measured
"""
