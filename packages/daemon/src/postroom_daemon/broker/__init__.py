"""The broker: groups of requests, each decided, made durable and answered as one transaction."""
