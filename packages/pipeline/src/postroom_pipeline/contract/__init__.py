"""What the pipeline takes: the fields of ``postroom_common.snapshot`` as columns."""
