"""Puts many snapshots into few files, without Spark: what is whole is copied as it is packed, the rest stays."""
