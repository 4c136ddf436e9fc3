"""Users of requests: bearer tokens, service account tokens, impersonation; TokenReview and access reviews."""
