"""Controllers of the development cluster: node lifecycle, taint eviction, pod GC, disruption budgets, volumes."""
