"""Tracing of pods, reconciles and requests: recording, sampling, export, journal and views of traces.

Layers, each importing only from lines below its own:

    provider                   composition for one process: recorders, recent traces, journal, exporter
    export | journal | views | observation
                               OTLP and console export; unfinished records on disk; terminal, browser page, Perfetto;
                               records of pods that other control planes create and schedule, from watches
    recording                  recorders of pods, reconciles and apply requests; recent traces in memory; current span
    sampling                   samplers (decision at the start of a trace) and tail rules (decision at its end)
    spans                      traceparent, records of pods and reconciles, and the spans built from them
    metrics_interface          metrics that tracing reports

`export`, `journal`, `views` and `observation` do not import each other. May import `kubeloop.kube`; `views`
also `kubeloop.informers`.
"""
