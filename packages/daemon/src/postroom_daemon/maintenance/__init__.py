"""Maintenance: verify, repair, backup, restore, migrate and transfer."""
