"""The dialects: one package for each system whose protocols the gateway speaks."""
