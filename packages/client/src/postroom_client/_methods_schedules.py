"""Messages that the daemon publishes by the clock."""

from ._methods import Methods


class ScheduleMethods(Methods):
    def set_schedule(
        self,
        name,
        queue,
        cron,
        timezone=None,
        missed=None,
        message=None,
        attributes=None,
        priority=None,
        ttl_ms=None,
        ordering_key=None,
        timeout=None,
    ):
        """Have a message published whenever ``cron`` (five fields, or "@every 5m") says, until ``delete_schedule``."""
        return self._send(
            "set_schedule",
            timeout,
            name=name,
            queue=queue,
            cron=cron,
            timezone=timezone,
            missed=missed,
            message=message,
            attributes=attributes,
            priority=priority,
            ttl_ms=ttl_ms,
            ordering_key=ordering_key,
        )

    def delete_schedule(self, name, timeout=None):
        """Forget a schedule; what it has published stays."""
        return self._send("delete_schedule", timeout, name=name)

    def list_schedules(self, limit=None, after=None, timeout=None):
        """A page of the schedules by name, each with the times of its last and its next run."""
        return self._send("list_schedules", timeout, limit=limit, after=after)
