"""What others see of the gateway: metrics and health."""
