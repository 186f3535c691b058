"""The filesystem store: the folder shows the state, the name sorts in delivery order."""
