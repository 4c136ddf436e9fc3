"""One module per kind with behaviour, in a folder per API group: kinds/GROUP/KIND.py defines the kind's STRATEGY.

The registry (api.strategy) imports a module by this name for the first request that needs it; nothing else imports it,
except kinds that share its rules. Other modules hold what several kinds of a group share. What kinds of several groups
share is below: pod specs in validation.pod and serializer.defaulting, admission plugins in admission.
"""
