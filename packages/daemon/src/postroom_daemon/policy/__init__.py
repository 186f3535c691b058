"""Policy: queue policies, access rules, quotas, rates and schemas."""
