"""The checks of ``postroom-pipeline doctor``."""
