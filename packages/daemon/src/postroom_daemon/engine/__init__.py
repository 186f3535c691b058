"""The engine: it decides requests and folds events, without I/O and without a clock."""
