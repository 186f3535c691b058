"""Doors: how requests reach the broker and answers leave it."""
