"""The journal of a Postroom daemon on several machines, through a stream of NATS JetStream. See ``docs/cluster.md``."""
