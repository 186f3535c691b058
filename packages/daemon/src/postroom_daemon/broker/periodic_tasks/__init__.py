"""Periodic tasks, each in steps; ``broker.periodic`` lists them."""
