"""Controllers that the development cluster runs itself: nodes, taints, pod garbage, disruption budgets, volumes."""
