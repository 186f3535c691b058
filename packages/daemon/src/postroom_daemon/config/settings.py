# ruff: noqa: RUF009 - setting() makes a field of the dataclass, it is no default value
"""The table of settings. Each is declared once; flags, environment variables, help and documentation derive from it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, TypeVar

from postroom_common.protocol import DEAD_DIR, REQUEST_BYTES_CEILING, REQUEST_BYTES_DEFAULT, REQUESTS_DIR, RESPONSES_DIR
from postroom_common.settings import Setting

#: The backend for each of its names.
BACKENDS: Final = {
    "sqlite": "sqlite",
    "memory": "memory",
    "filesystem": "filesystem",
    "fs": "filesystem",
    "hybrid": "hybrid",
}
#: The backend for each value of the older setting ``mode``.
MODES: Final = {
    "mailbox_sqlite": "sqlite",
    "mailbox_fs": "filesystem",
    "mailbox_filesystem": "filesystem",
    "hybrid": "hybrid",
}
_MS_CEILING: Final = 24 * 3600 * 1000
_BYTES_CEILING: Final = 2**40
_HOURS_CEILING: Final = 100 * 365 * 24
_IDENTIFIER: Final = {
    "pattern": "[A-Za-z_][A-Za-z0-9_]{0,62}",
    "form": "SQL name: a letter or _, then letters, digits and _, at most 63 in all",
}
_NAME: Final = {
    "pattern": r"(?!\.{1,2}$)[^/\x00-\x1f\x7f]{1,200}",
    "form": "name of a directory, without slashes",
}
_PATH_OR_NONE: Final = {"pattern": r"[^\x00-\x1f\x7f]*", "form": "path (a string without control characters), or empty"}
_IN_PLACE: Final = "requests are processed in place"

T = TypeVar("T")


def setting(key: str, default: T, help: str, **rules: Any) -> T:  # noqa: A002 - the name in Setting
    """Declare a field of ``Settings`` with the type of its default. ``rules`` are further fields of ``Setting``."""
    kind = Path if isinstance(default, Path) else type(default)  # type(Path()) depends on the platform
    declared = Setting(key, kind, default, help, **rules)
    made: T = field(default=default, metadata={"setting": declared})
    return made


@dataclass(frozen=True)
class Settings:
    """The values of all settings. Paths are absolute once ``load`` has resolved them."""

    schema_version: str = setting("schemaVersion", "0.1", "version of the file's format (ignored)")
    node_id: str = setting("nodeId", "local-01", "name of this device")
    backend: str = setting(
        "backend",
        "sqlite",
        "store of the messages; memory is for tests, and loses them at the end",
        choices=tuple(BACKENDS),
    )
    mode: str = setting(
        "mode",
        "mailbox_sqlite",
        "older way to name the backend; `backend` wins if both are set",
        choices=tuple(MODES),
    )

    paths_data_root: Path = setting(
        "paths.dataRoot",
        Path("data"),
        "directory of the data",
        unused="each store has its own path, such as sqlite.dbPath",
    )
    paths_log_root: str = setting("paths.logRoot", "", "directory of log files; empty: none", **_PATH_OR_NONE)

    ipc_root: Path = setting("ipc.root", Path("ipc"), "root of the mailbox", by_variable=False)
    ipc_requests_dir: str = setting("ipc.requestsDir", REQUESTS_DIR, "directory of requests, inside ipc.root", **_NAME)
    ipc_processing_dir: str = setting(
        "ipc.processingDir",
        "processing",
        "directory to which the C++ system moved requests first",
        **_NAME,
        unused=_IN_PLACE,
    )
    ipc_responses_dir: str = setting(
        "ipc.responsesDir", RESPONSES_DIR, "directory of responses, inside ipc.root", **_NAME
    )
    ipc_dead_dir: str = setting("ipc.deadDir", DEAD_DIR, "directory of rejected requests, inside ipc.root", **_NAME)
    ipc_held_dir: str = setting(
        "ipc.heldDir",
        "held",
        "directory of spilled requests, which exceed their user's share, inside ipc.root",
        **_NAME,
    )
    ipc_stale_timeout_ms: int = setting(
        "ipc.staleTimeoutMs",
        30000,
        "age at which the C++ system gave up a request in ipc.processingDir",
        unused=_IN_PLACE,
    )
    ipc_poll_interval_ms: int = setting(
        "ipc.pollIntervalMs",
        100,
        "time between two polls of the requests, if nothing wakes the daemon",
        low=1,
        high=60000,
    )
    ipc_use_folder_watcher: bool = setting(
        "ipc.useFolderWatcher", True, "let the kernel wake the daemon when a request arrives; false: poll"
    )
    ipc_response_max_age_ms: int = setting(
        "ipc.responseMaxAgeMs", 300000, "age at which an unread response is removed", low=1000, high=30 * _MS_CEILING
    )
    ipc_dead_max_files: int = setting(
        "ipc.deadMaxFiles", 1000, "maximum number of rejected requests that are retained", low=1, high=10**6
    )
    ipc_dead_max_age_hours: int = setting(
        "ipc.deadMaxAgeHours", 168, "age at which rejected requests are removed", low=1, high=_HOURS_CEILING
    )
    ipc_temp_max_age_ms: int = setting(
        "ipc.tempMaxAgeMs", 3600000, "age at which an abandoned *.tmp file is removed", low=60000, high=30 * _MS_CEILING
    )

    lane_enabled: bool = setting("lane.enabled", True, "serve local clients over the socket lane.sock, too")
    lane_connections: int = setting("lane.connections", 1024, "connections to the lane", low=1, high=65536)
    lane_user_connections: int = setting(
        "lane.userConnections", 256, "connections of one user to the lane", low=1, high=65536
    )
    lane_requests: int = setting(
        "lane.requests", 256, "requests of a connection that are read before one is answered", low=1, high=65536
    )
    lane_frame_ms: int = setting(
        "lane.frameMs",
        30000,
        "longest time for a request to arrive, once it has begun, and for a client to read some of its answers",
        low=1000,
        high=_MS_CEILING,
    )
    lane_user_bytes: int = setting(
        "lane.userBytes",
        33554432,
        "memory for the requests and unread answers of one user's connections",
        low=2**20,
        high=2**40,
    )

    cluster_enabled: bool = setting(
        "cluster.enabled",
        False,
        "be a member of a cluster: follow, or lead once postroom-cluster says so over the socket cluster.sock",
    )
    cluster_confirm_ms: int = setting(
        "cluster.confirmMs",
        5000,
        "longest time for the cluster to confirm a group; then this node no longer leads",
        low=100,
        high=30000,
    )

    gateway_users: str = setting(
        "gateway.users",
        "",
        "users (names or numbers, separated by commas) whose processes may send requests for other principals over the"
        " lane; empty: none",
    )

    sqlite_db_path: Path = setting("sqlite.dbPath", Path("data/yirangmq.db"), "the database file")
    sqlite_kv_table: str = setting("sqlite.kvTable", "kv", "table of messages", **_IDENTIFIER)
    sqlite_message_index_table: str = setting(
        "sqlite.messageIndexTable", "msg_index", "table of the messages' states", **_IDENTIFIER
    )
    sqlite_schema_path: str = setting("sqlite.schemaPath", "", "schema file", unused="the schema is built in")
    sqlite_busy_timeout_ms: int = setting(
        "sqlite.busyTimeoutMs",
        5000,
        "longest wait for another process that has locked the database",
        low=0,
        high=600000,
    )
    sqlite_journal_mode: str = setting(
        "sqlite.journalMode",
        "WAL",
        "SQLite's journal mode",
        choices=("WAL",),
        corrected=("DELETE", "TRUNCATE", "PERSIST", "MEMORY", "OFF"),
    )
    sqlite_synchronous: str = setting(
        "sqlite.synchronous",
        "NORMAL",
        "how often SQLite syncs; NORMAL is enough, because the journal can redo what the database loses",
        choices=("NORMAL", "FULL", "EXTRA"),
        corrected=("OFF",),
    )

    filesystem_root: Path = setting("filesystem.root", Path("data/fs"), "root of the filesystem store")
    filesystem_inbox_dir: str = setting(
        "filesystem.inboxDir", "inbox", "name of its directories of ready messages", **_NAME
    )
    filesystem_processing_dir: str = setting(
        "filesystem.processingDir", "processing", "name of its directories of messages in flight", **_NAME
    )
    filesystem_delayed_dir: str = setting(
        "filesystem.delayedDir", "delayed", "name of its directories of delayed messages", **_NAME
    )
    filesystem_archive_dir: str = setting(
        "filesystem.archiveDir",
        "archive",
        "name of its directories of acknowledged messages, until the next checkpoint",
        **_NAME,
    )
    filesystem_dlq_dir: str = setting("filesystem.dlqDir", "dlq", "name of its directories of dead letters", **_NAME)
    filesystem_held_dir: str = setting(
        "filesystem.heldDir", "held", "name of its directories of messages on hold", **_NAME
    )
    filesystem_meta_dir: str = setting("filesystem.metaDir", "meta", "name of its directory of checkpoints", **_NAME)

    hybrid_payload_root: Path = setting("hybrid.payloadRoot", Path("data/payloads"), "root of the files with bodies")
    hybrid_inline_below_bytes: int = setting(
        "hybrid.inlineBelowBytes",
        4096,
        "bodies smaller than this are stored in the database",
        low=0,
        high=REQUEST_BYTES_CEILING,
    )

    lease_visibility_timeout_sec: float = setting(
        "lease.visibilityTimeoutSec",
        30.0,
        "older name of policyDefaults.visibilityTimeoutSec, which wins if both are set",
        low=0.001,
        high=7 * 24 * 3600,
        below=30,
    )
    lease_sweep_interval_ms: int = setting(
        "lease.sweepIntervalMs",
        1000,
        "time between two checks for ended leases in the C++ system",
        low=1,
        high=3600000,
        unused="leases and delays end when they are due",
    )

    logs_root: Path = setting("logs.root", Path("data/logs"), "directory of the records of logs")
    journal_root: Path = setting("journal.root", Path("journal"), "directory of the journal")
    journal_durability: str = setting(
        "journal.durability",
        "commit",
        "when the journal is synced: commit (before an answer), interval (every journal.intervalMs), none (never)",
        choices=("commit", "interval", "none"),
    )
    journal_interval_ms: int = setting(
        "journal.intervalMs", 50, "time between two syncs with durability interval", low=1, high=60000
    )
    journal_segment_bytes: int = setting(
        "journal.segmentBytes", 16777216, "size at which a new segment of the journal is begun", low=65536, high=2**31
    )
    journal_retention_hours: int = setting(
        "journal.retentionHours",
        168,
        "age at which a segment of the journal may be deleted",
        low=0,
        high=_HOURS_CEILING,
    )
    journal_max_bytes: int = setting(
        "journal.maxBytes",
        1073741824,
        "size of the whole journal at which its oldest segments may be deleted",
        low=2**20,
        high=_BYTES_CEILING,
    )

    traffic_root: Path = setting("traffic.root", Path("traffic"), "directory of the traffic log")
    traffic_enabled: bool = setting("traffic.enabled", True, "write a line for each request")
    traffic_sample_every: int = setting("traffic.sampleEvery", 1, "write only every n-th request", low=1, high=10**9)
    traffic_file_bytes: int = setting(
        "traffic.fileBytes", 4194304, "size at which a new traffic file is begun", low=4096, high=2**31
    )
    traffic_files: int = setting("traffic.files", 4, "number of traffic files that are retained", low=1, high=1000)
    traffic_refusals_per_minute: int = setting(
        "traffic.refusalsPerMinute",
        60,
        "lines a minute for refused requests of one user (ERR_FORBIDDEN, ERR_QUOTA_EXCEEDED); 0: no limit",
        low=0,
        high=10**6,
    )

    limits_request_bytes: int = setting(
        "limits.requestBytes",
        REQUEST_BYTES_DEFAULT,
        "maximum size of a request",
        low=1024,
        high=REQUEST_BYTES_CEILING,
    )
    limits_group_requests: int = setting(
        "limits.groupRequests", 256, "maximum number of requests in a group, which shares one sync", low=1, high=65536
    )
    limits_group_bytes: int = setting(
        "limits.groupBytes", 4194304, "maximum size of the requests in a group", low=1024, high=2**30
    )
    limits_user_share_requests: int = setting(
        "limits.userShareRequests",
        500,
        "pending requests of one user in ipc.requestsDir, if users share it; more are spilled to ipc.heldDir",
        low=1,
        high=10**6,
    )
    limits_user_turn_requests: int = setting(
        "limits.userTurnRequests",
        4,
        "requests of one user in a group of a shared mailbox; 4 times as many while others send few, 16 times if none",
        low=1,
        high=65536,
    )
    limits_user_pending_requests: int = setting(
        "limits.userPendingRequests", 1000000, "pending requests of one user; 0: no limit", low=0, high=10**9
    )
    limits_user_pending_bytes: int = setting(
        "limits.userPendingBytes",
        4294967296,
        "bytes of the pending requests of one user; 0: no limit",
        low=0,
        high=_BYTES_CEILING,
    )
    limits_user_requests_per_sec: int = setting(
        "limits.userRequestsPerSec", 20000, "requests of one user per second; 0: no limit", low=0, high=10**6
    )
    limits_user_waits: int = setting(
        "limits.userWaits", 1000, "requests of one user that wait for a message; 0: no limit", low=0, high=10**6
    )
    limits_user_leases: int = setting(
        "limits.userLeases", 100000, "messages leased to one user; 0: no limit", low=0, high=10**9
    )
    limits_user_stored_bytes: int = setting(
        "limits.userStoredBytes",
        4294967296,
        "bytes of the stored messages that one user has published; 0: no limit",
        low=0,
        high=_BYTES_CEILING,
    )
    storage_min_free_bytes: int = setting(
        "storage.minFreeBytes", 33554432, "free space below which publishes are refused", low=0, high=_BYTES_CEILING
    )
    storage_reserve_bytes: int = setting(
        "storage.reserveBytes",
        4194304,
        "reserved space in journal.root, so that everything but publishing works on a full disk; 0: none",
        low=0,
        high=_BYTES_CEILING,
    )
    snapshots_enabled: bool = setting(
        "snapshots.enabled", True, "write a state file each hour in which something has changed"
    )
    snapshots_root: Path = setting("snapshots.root", Path("data/snapshots"), "directory of the state files")
    snapshots_retention_hours: int = setting(
        "snapshots.retentionHours",
        168,
        "age at which state files are removed; the newest stays",
        low=1,
        high=_HOURS_CEILING,
    )
    snapshots_max_files: int = setting(
        "snapshots.maxFiles", 168, "number of state files that are retained", low=1, high=10**6
    )
    snapshots_max_bytes: int = setting(
        "snapshots.maxBytes",
        67108864,
        "size of all state files; a larger state is not written",
        low=65536,
        high=_BYTES_CEILING,
    )
    metrics_file: str = setting(
        "metrics.file",
        "",
        "file with the daemon's metrics for the textfile collector of Prometheus, NAME.prom; empty: none",
        **_PATH_OR_NONE,
    )
    metrics_interval_sec: int = setting(
        "metrics.intervalSec", 60, "time between two versions of metrics.file", low=1, high=24 * 3600
    )
    metrics_queues: int = setting(
        "metrics.queues",
        100,
        "number of queues with metrics of their own, in metrics.file and in the answer to metrics",
        low=0,
        high=1000,
    )
    log_level: str = setting(
        "log.level", "info", "lowest level that is logged", choices=("debug", "info", "warning", "error")
    )
    log_format: str = setting(
        "log.format",
        "auto",
        "form of the log on standard error; auto: text on a terminal, journald if systemd's journal reads it, else"
        " json",
        choices=("auto", "text", "json", "journald"),
    )
    log_per_minute: int = setting(
        "log.perMinute", 20, "records of one kind that are logged per minute; 0: no limit", low=0, high=10**6
    )
    log_file_bytes: int = setting(
        "log.fileBytes", 4194304, "size at which a new file in paths.logRoot is begun", low=4096, high=2**31
    )
    log_files: int = setting("log.files", 4, "number of files that are retained in paths.logRoot", low=1, high=1000)


#: Every setting by key, in the order of the documentation.
SETTINGS: Final[dict[str, Setting]] = {
    item.metadata["setting"].key: item.metadata["setting"] for item in fields(Settings)
}
#: The attribute of ``Settings`` for each key.
ATTRIBUTES: Final = {item.metadata["setting"].key: item.name for item in fields(Settings)}


def is_path_or_none(declared: Setting) -> bool:
    """Whether a setting is a path that may be empty."""
    return declared.form == _PATH_OR_NONE["form"]
