"""Authorization of requests: RBAC, node authorizer, modes; escalation checks, impersonation, access reviews."""
