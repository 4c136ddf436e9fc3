"""Calls that the API server makes: to admission and conversion webhooks, and to aggregated API servers.

service_addresses.py  addresses of Services and of hosts in URLs on this machine
webhook_client.py     connections to webhooks, with Go's error texts
"""
