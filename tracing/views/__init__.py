"""Views of traces: what a person sees of the documents that `Trace.document` makes.

    lines     one pod as a line of phases over time; the model of every list and rollout
    rollout   the pods of a Deployment together: percentiles per phase, the slowest
    waterfall, rollout_view   the terminal
    otlp      OTLP as JSON, written and read
    perfetto  Chrome trace events
    page      the browser page, served or as one file
    feed, answers   what the page is told while the process runs

All work on documents, so that a trace looks the same whether it comes from the running process or from a file. May
import rich, msgspec, `kubeloop.kube`, `kubeloop.informers` and `kubeloop.tracing`.
"""
