"""The API client: requests, transports, retries, rate limits, discovery."""
