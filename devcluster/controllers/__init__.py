"""Controllers of the development cluster: node lifecycle, disruption budgets, volumes."""
