"""The runs over a warehouse: ``ingest``, ``follow``, ``compact`` and ``report``. Only jobs write tables."""
