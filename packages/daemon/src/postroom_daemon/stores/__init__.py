"""Stores: the fold of the journal, by backend."""
