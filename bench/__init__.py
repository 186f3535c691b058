"""Benchmarks: measured figures beside their budgets. ``scripts/bench`` runs them."""
