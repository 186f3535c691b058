"""All faults that a test puts into a root, with the finding that ``verify`` must report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from postroom_daemon.maintenance.verify import Kind
from tests.conformance.bench import Bench
from tests.daemon import faults_in_files, faults_in_journal, faults_in_store
from tests.daemon.populated_root import Keys, populate

STORES: Final = ("sqlite", "filesystem", "hybrid")
DATABASES: Final = ("sqlite", "hybrid")


class Fault(NamedTuple):
    """How to make a fault, the kind of its finding, and the stores that can have it."""

    make: Callable[[Bench, Keys], None]
    kind: Kind
    stores: tuple[str, ...] = STORES


FAULTS: Final = (
    Fault(faults_in_journal.journal_flip, Kind.JOURNAL_DAMAGED),
    Fault(faults_in_journal.journal_torn_request, Kind.JOURNAL_INCOMPLETE),
    Fault(faults_in_journal.journal_head_flip, Kind.JOURNAL_DAMAGED),
    Fault(faults_in_journal.journal_segment_of_nothing, Kind.JOURNAL_DAMAGED),
    Fault(faults_in_journal.journal_segment_gone, Kind.EVENTS_MISSING),
    Fault(faults_in_journal.journal_gone, Kind.JOURNAL_MISSING),
    Fault(faults_in_journal.journal_emptied, Kind.JOURNAL_MISSING),
    Fault(faults_in_journal.journal_copy, Kind.JOURNAL_DISORDER),
    Fault(faults_in_journal.journal_renamed, Kind.JOURNAL_MISNAMED),
    Fault(faults_in_journal.journal_directory, Kind.JOURNAL_NOT_A_FILE),
    Fault(faults_in_journal.journal_foreign, Kind.JOURNAL_FOREIGN),
    Fault(faults_in_files.store_gone, Kind.STORE_MISSING),
    Fault(faults_in_files.database_overwritten, Kind.STORE_DAMAGED, DATABASES),
    Fault(faults_in_store.row_changed, Kind.STORE_DAMAGED, DATABASES),
    Fault(faults_in_store.message_removed, Kind.MESSAGE_MISSING, DATABASES),
    Fault(faults_in_store.message_back, Kind.MESSAGE_LEFT),
    Fault(faults_in_store.message_ready_again, Kind.MESSAGE_WRONG),
    Fault(faults_in_store.lease_changed, Kind.MESSAGE_WRONG),
    Fault(faults_in_store.due_too_early, Kind.MESSAGE_WRONG),
    Fault(faults_in_store.priority_changed, Kind.MESSAGE_WRONG),
    Fault(faults_in_store.history_gone, Kind.MESSAGE_WRONG),
    Fault(faults_in_store.body_changed, Kind.BODY_WRONG),
    Fault(faults_in_store.counts_wrong, Kind.QUEUE_COUNTS, DATABASES),
    Fault(faults_in_store.pause_forgotten, Kind.QUEUE_WRONG),
    Fault(faults_in_store.policy_forgotten, Kind.QUEUE_WRONG),
    Fault(faults_in_store.totals_wrong, Kind.QUEUE_WRONG),
    Fault(faults_in_store.dlq_name_forgotten, Kind.DLQ_NAME),
    Fault(faults_in_store.claims_forgotten, Kind.CLAIM_WRONG),
    Fault(faults_in_store.claim_of_another, Kind.CLAIM_WRONG),
    Fault(faults_in_store.claim_never_ends, Kind.CLAIM_WRONG),
    Fault(faults_in_store.schedule_forgotten, Kind.SCHEDULE_WRONG),
    Fault(faults_in_store.schedule_changed, Kind.SCHEDULE_WRONG),
    Fault(faults_in_store.schedule_back, Kind.SCHEDULE_WRONG),
    Fault(faults_in_store.drains, Kind.DRAIN_WRONG),
    Fault(faults_in_store.policy_patterns_of_nobody, Kind.POLICY_PATTERNS_WRONG),
    Fault(faults_in_store.created_with_another_policy, Kind.QUEUE_WRONG),
    Fault(faults_in_store.end_forgotten, Kind.MESSAGE_WRONG),
    Fault(faults_in_store.bytes_wrong, Kind.QUEUE_COUNTS, DATABASES),
    Fault(faults_in_store.reasons_wrong, Kind.QUEUE_COUNTS, DATABASES),
    Fault(faults_in_store.clock_changed, Kind.CLOCK_WRONG),
    Fault(faults_in_store.losses_known, Kind.EVENTS_LOST),
    Fault(faults_in_store.index_row_gone, Kind.ROW_ORPHAN, ("sqlite",)),
    Fault(faults_in_store.index_row_gone, Kind.MESSAGE_MISSING, DATABASES),
    Fault(faults_in_store.body_row_gone, Kind.BODY_LOST, DATABASES),
    Fault(faults_in_store.queue_row_gone, Kind.QUEUE_MISSING, DATABASES),
    Fault(faults_in_store.history_orphan, Kind.ROW_ORPHAN, DATABASES),
    Fault(faults_in_files.payload_gone, Kind.BODY_LOST, ("hybrid",)),
    Fault(faults_in_files.payload_changed, Kind.BODY_LOST, ("hybrid",)),
    Fault(faults_in_files.payload_orphan, Kind.FILE_ORPHAN, ("hybrid",)),
    Fault(faults_in_files.payload_misplaced, Kind.FILE_MISPLACED, ("hybrid",)),
    Fault(faults_in_files.payload_stray, Kind.FILE_STRANGE, ("hybrid",)),
    Fault(faults_in_files.file_gone, Kind.MESSAGE_MISSING, ("filesystem",)),
    Fault(faults_in_files.file_damaged, Kind.BODY_LOST, ("filesystem",)),
    Fault(faults_in_files.file_second, Kind.FILE_SECOND, ("filesystem",)),
    Fault(faults_in_files.file_in_another_folder, Kind.FILE_MISPLACED, ("filesystem",)),
    Fault(faults_in_files.file_strange, Kind.FILE_STRANGE, ("filesystem",)),
    Fault(faults_in_files.checkpoint_damaged, Kind.CHECKPOINT_DAMAGED, ("filesystem",)),
)
CASES: Final = [(fault, store) for fault in FAULTS for store in fault.stores]
NAMES: Final = [f"{fault.make.__name__}-{fault.kind}-{store}" for fault, store in CASES]


def faulty_root(make_bench: Callable[..., Bench], fault: Fault, store: str) -> tuple[Bench, Keys]:
    """A stopped root with this fault, and the keys of its messages."""
    bench = make_bench(store, segment_bytes=1500).open()
    keys = populate(bench)
    fault.make(bench, keys)
    return bench, keys
