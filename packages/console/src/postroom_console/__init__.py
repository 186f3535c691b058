"""The operations console of Postroom."""
