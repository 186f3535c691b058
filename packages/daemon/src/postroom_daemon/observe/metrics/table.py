"""Every metric with its name, type and meaning. The documentation has this table; dashboards and alerts use the names.

No name starts with ``process_``: node_exporter, which may read the text, has metrics of its own with such names.
"""

from __future__ import annotations

from typing import Final

from postroom_common.exposition import Metric


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"postroom_{name}", "gauge", text, labels)


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"postroom_{name}_total", "counter", text, labels)


def _histogram(name: str, text: str) -> Metric:
    return Metric(f"postroom_{name}", "histogram", text)


UP: Final = _gauge("up", "1 while the daemon serves, 0 after a clean stop.")
BUILD_INFO: Final = _gauge("build_info", "Always 1.", "version", "backend", "durability", "node")
COLLECTED: Final = _gauge(
    "collected_timestamp_seconds", "When these metrics were collected, by the device's clock (Unix)."
)
STARTED: Final = _gauge("start_time_seconds", "When the daemon started, by the device's clock (Unix).")
CHECK_OK: Final = _gauge("check_ok", "1 if this check of health succeeds.", "check")
LOST_EVENTS: Final = _gauge("lost_events", "Lost events whose loss nobody has accepted.")
DRAINING: Final = _gauge("draining", "1 while the daemon drains: it accepts no new messages.")

REQUESTS: Final = _counter("requests", "Requests, by command; rejected ones have none.", "command")
ERRORS: Final = _counter("request_errors", "Requests that failed, by error code.", "code")
SET_ASIDE: Final = _counter("requests_set_aside", "Requests that were rejected without an answer, and moved to dead/.")
REQUEST_SECONDS: Final = _histogram("request_duration_seconds", "Time from reading a request to its durable answer.")
REQUEST_AGE: Final = _histogram(
    "request_age_seconds", "Age of a request file when it was answered, as its client sees it, without long polls."
)
GROUP_REQUESTS: Final = _histogram("group_requests", "Requests in a group; their events share one sync.")
EVENTS: Final = _counter("events", "Events of the journal since the start, by type.", "type")
LEASE_TO_ACK: Final = Metric(
    "postroom_lease_to_ack_seconds", "summary", "Time from a lease to its ack, since the start.", ()
)

SYNC_SECONDS: Final = _histogram("journal_sync_duration_seconds", "Duration of the journal's syncs (fdatasync).")
CLUSTER_LEADS: Final = _gauge("cluster_leads", "1 if this node of a cluster leads, 0 if it follows.")
CLUSTER_EPOCH: Final = _gauge("cluster_epoch", "The cluster's epoch, as far as this node knows.")
CLUSTER_LAG: Final = _gauge("cluster_lag_groups", "Groups of the cluster that this node has not applied yet.")
LAST_EVENT: Final = _gauge("journal_last_event", "Id of the journal's last event.")
UNFOLDED: Final = _gauge("journal_unfolded_events", "Events that the store lacks; more than 0 only after a failure.")
LAG: Final = _gauge(
    "journal_lag_events", "Events that the store has not made durable: a start after a power cut folds them."
)
JOURNAL_BYTES: Final = _gauge("journal_bytes", "Size of the journal.")
JOURNAL_FILES: Final = _gauge("journal_files", "Number of the journal's segments.")

WAITING: Final = _gauge("mailbox_waiting_requests", "Request files that were seen and not processed yet.")
HELD_FILES: Final = _gauge(
    "mailbox_held_requests", "Requests spilled to held/, because they exceed their user's share."
)
STRAYS: Final = _counter("mailbox_strays_removed", "Orphans that were removed from requests/.")
QUOTA_REFUSALS: Final = _counter("quota_refusals", "Refusals because a user exceeded a quota, by quota.", "limit")
UNANSWERABLE: Final = _gauge(
    "mailbox_unanswerable_requests", "Requests that are not executed, because their answer could not be written."
)
PARKED: Final = _gauge("mailbox_parked_requests", "Requests that wait for a message (long polls).")
DEAD_FILES: Final = _gauge("mailbox_dead_files", "Rejected requests in dead/.")

DISK_FREE: Final = _gauge("disk_available_bytes", "Free space on the file system of this directory.", "directory")
DISK_SIZE: Final = _gauge("disk_size_bytes", "Size of the file system of this directory.", "directory")
INODES_FREE: Final = _gauge(
    "disk_available_inodes", "Free inodes there; 0 if the file system does not count them.", "directory"
)
INODES: Final = _gauge("disk_inodes", "Inodes there; 0 if the file system does not count them.", "directory")
DISK_MINIMUM: Final = _gauge("disk_minimum_bytes", "Free space below which publishes are refused.")
HELD_BACK: Final = _gauge(
    "disk_held_back_bytes", "Size of the reserve, which publishes never use; smaller on a full disk."
)
QUARANTINE_FILES: Final = _gauge("quarantine_files", "Files in quarantine/.")
QUARANTINE_BYTES: Final = _gauge("quarantine_bytes", "Size of quarantine/.")

LOG_RECORDS: Final = _counter("log_records", "Records of the log, including suppressed ones, by level.", "level")
LOG_SUPPRESSED: Final = _counter(
    "log_records_suppressed", "Records suppressed because there were too many of their kind."
)
LOG_LOST: Final = _counter("log_records_lost", "Records that systemd's journal or the disk did not accept.")
TRAFFIC_LOST: Final = _counter("traffic_lines_lost", "Lines of the traffic log that the disk did not accept.")
TRAFFIC_HELD_BACK: Final = _counter(
    "traffic_lines_held_back", "Lines of the traffic log suppressed because a user was refused again and again."
)
CPU_SECONDS: Final = _counter("process_cpu_seconds", "CPU time that the daemon has used.")
MEMORY: Final = _gauge("process_resident_memory_bytes", "Resident memory of the daemon.")
OPEN_FDS: Final = _gauge("process_open_fds", "Open file descriptors of the daemon.")
MAX_FDS: Final = _gauge("process_max_fds", "Maximum number of open file descriptors.")

QUEUES: Final = _gauge("queues", "Queues that the metrics below count.")
QUEUES_LISTED: Final = _gauge("queues_listed", "Queues that have metrics of their own.")
QUEUES_COMPLETE: Final = _gauge("queues_complete", "1 if all queues are counted, 0 if there are too many.")
MESSAGES: Final = _gauge("messages", "Messages of all queues, by state.", "state")
MESSAGE_BYTES: Final = _gauge("message_bytes", "Bytes of all messages that are not dead.")
DEAD_LETTERS: Final = _gauge("dead_letters", "Dead letters of all queues, by reason.", "reason")
OLDEST_READY: Final = _gauge("oldest_ready_age_seconds", "Age of the oldest ready message of all queues; 0: none.")
OLDEST_LEASE: Final = _gauge("oldest_lease_age_seconds", "Age of the oldest lease of all queues; 0: none.")
OLDEST_DEAD: Final = _gauge("oldest_dead_letter_age_seconds", "Age of the oldest dead letter of all queues; 0: none.")
QUEUE_MESSAGES: Final = _gauge("queue_messages", "Messages of a queue, by state.", "queue", "state")
QUEUE_BYTES: Final = _gauge("queue_bytes", "Bytes of its messages that are not dead.", "queue")
QUEUE_OLDEST_READY: Final = _gauge(
    "queue_oldest_ready_age_seconds", "Age of its oldest ready message; 0: none.", "queue"
)
QUEUE_OLDEST_LEASE: Final = _gauge("queue_oldest_lease_age_seconds", "Age of its oldest lease; 0: none.", "queue")
QUEUE_OLDEST_DEAD: Final = _gauge(
    "queue_oldest_dead_letter_age_seconds", "Age of its oldest dead letter; 0: none.", "queue"
)
QUEUE_DEAD_LETTERS: Final = _gauge("queue_dead_letters", "Its dead letters, by reason.", "queue", "reason")
QUEUE_PAUSED: Final = _gauge("queue_paused", "1 while this operation is paused.", "queue", "operation")
QUEUE_EVENTS: Final = _counter("queue_events", "Events in it since it was created, by type.", "queue", "type")
QUEUE_RECORDS: Final = _gauge("queue_records", "Records of a log.", "queue")
QUEUE_RECORD_BYTES: Final = _gauge("queue_record_bytes", "Bytes of the records of a log.", "queue")
QUEUE_READER_LAG: Final = _gauge(
    "queue_reader_lag",
    "Positions from that of a named reader of a log to the last record, of the 100 furthest behind; 0: at the end.",
    "queue",
    "reader",
)

#: All metrics.
METRICS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
