"""What listens: connections, TLS, authentication, limits and slow peers, whatever protocol is spoken."""
