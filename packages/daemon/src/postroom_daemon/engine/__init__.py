"""The engine: a request and the state to events (decide), and events into the state (fold)."""
