"""The scheduling queue.

    scheduling_queue.py       pops pods for the scheduling loop, and receives the events of pods and other objects
    pod_queues.py             moves of pods between the three queues
    pod_heap.py               the active queue, and the parts of the backoff queue
    backoff_queue.py          pods that wait after a failed attempt
    unschedulable_pods.py     rejected and gated pods
    pre_enqueue.py            PreEnqueue plugins, which gate pods
    event_moves.py            moves of unschedulable pods after a cluster event
    queueing_hints.py         which events may make a pod schedulable
    in_flight_events.py       popped pods, and the events that they may have missed
    nominator.py              nominated pods
    safe_sort.py              order of pods by a user's QueueSort plugin
    queue_settings.py         settings, and what receives the events of the queue

Source: pkg/scheduler/backend/queue of v1.36.
"""
