"""Each way to hurt a root by hand, with what ``verify`` must call it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from postroom_daemon.maintenance.verify import Kind
from tests.conformance.bench import Bench
from tests.daemon import hurt_files, hurt_journal, hurt_store
from tests.daemon.used import Used, use

STORES: Final = ("sqlite", "filesystem", "hybrid")
DATABASES: Final = ("sqlite", "hybrid")


class Wound(NamedTuple):
    """What to do to a root, what ``verify`` must call it, and the stores on which it can be done."""

    make: Callable[[Bench, Used], None]
    kind: Kind
    stores: tuple[str, ...] = STORES


WOUNDS: Final = (
    Wound(hurt_journal.journal_flip, Kind.JOURNAL_DAMAGED),
    Wound(hurt_journal.journal_torn_request, Kind.JOURNAL_INCOMPLETE),
    Wound(hurt_journal.journal_head_flip, Kind.JOURNAL_DAMAGED),
    Wound(hurt_journal.journal_segment_of_nothing, Kind.JOURNAL_DAMAGED),
    Wound(hurt_journal.journal_segment_gone, Kind.EVENTS_MISSING),
    Wound(hurt_journal.journal_gone, Kind.JOURNAL_MISSING),
    Wound(hurt_journal.journal_emptied, Kind.JOURNAL_MISSING),
    Wound(hurt_journal.journal_copy, Kind.JOURNAL_DISORDER),
    Wound(hurt_journal.journal_renamed, Kind.JOURNAL_MISNAMED),
    Wound(hurt_journal.journal_directory, Kind.JOURNAL_NOT_A_FILE),
    Wound(hurt_journal.journal_foreign, Kind.JOURNAL_FOREIGN),
    Wound(hurt_files.store_gone, Kind.STORE_MISSING),
    Wound(hurt_files.database_overwritten, Kind.STORE_DAMAGED, DATABASES),
    Wound(hurt_store.row_changed, Kind.STORE_DAMAGED, DATABASES),
    Wound(hurt_store.message_removed, Kind.MESSAGE_MISSING, DATABASES),
    Wound(hurt_store.message_back, Kind.MESSAGE_LEFT),
    Wound(hurt_store.message_ready_again, Kind.MESSAGE_WRONG),
    Wound(hurt_store.lease_changed, Kind.MESSAGE_WRONG),
    Wound(hurt_store.due_too_early, Kind.MESSAGE_WRONG),
    Wound(hurt_store.priority_changed, Kind.MESSAGE_WRONG),
    Wound(hurt_store.history_gone, Kind.MESSAGE_WRONG),
    Wound(hurt_store.body_changed, Kind.BODY_WRONG),
    Wound(hurt_store.counts_wrong, Kind.QUEUE_COUNTS, DATABASES),
    Wound(hurt_store.pause_forgotten, Kind.QUEUE_WRONG),
    Wound(hurt_store.policy_forgotten, Kind.QUEUE_WRONG),
    Wound(hurt_store.totals_wrong, Kind.QUEUE_WRONG),
    Wound(hurt_store.dlq_name_forgotten, Kind.DLQ_NAME),
    Wound(hurt_store.claims_forgotten, Kind.CLAIM_WRONG),
    Wound(hurt_store.claim_of_another, Kind.CLAIM_WRONG),
    Wound(hurt_store.claim_never_ends, Kind.CLAIM_WRONG),
    Wound(hurt_store.schedule_forgotten, Kind.SCHEDULE_WRONG),
    Wound(hurt_store.schedule_changed, Kind.SCHEDULE_WRONG),
    Wound(hurt_store.schedule_back, Kind.SCHEDULE_WRONG),
    Wound(hurt_store.drains, Kind.DRAIN_WRONG),
    Wound(hurt_store.end_forgotten, Kind.MESSAGE_WRONG),
    Wound(hurt_store.bytes_wrong, Kind.QUEUE_COUNTS, DATABASES),
    Wound(hurt_store.reasons_wrong, Kind.QUEUE_COUNTS, DATABASES),
    Wound(hurt_store.clock_changed, Kind.CLOCK_WRONG),
    Wound(hurt_store.losses_known, Kind.EVENTS_LOST),
    Wound(hurt_store.index_row_gone, Kind.ROW_ORPHAN, ("sqlite",)),
    Wound(hurt_store.index_row_gone, Kind.MESSAGE_MISSING, DATABASES),
    Wound(hurt_store.body_row_gone, Kind.BODY_LOST, DATABASES),
    Wound(hurt_store.queue_row_gone, Kind.QUEUE_MISSING, DATABASES),
    Wound(hurt_store.history_orphan, Kind.ROW_ORPHAN, DATABASES),
    Wound(hurt_files.payload_gone, Kind.BODY_LOST, ("hybrid",)),
    Wound(hurt_files.payload_changed, Kind.BODY_LOST, ("hybrid",)),
    Wound(hurt_files.payload_orphan, Kind.FILE_ORPHAN, ("hybrid",)),
    Wound(hurt_files.payload_misplaced, Kind.FILE_MISPLACED, ("hybrid",)),
    Wound(hurt_files.payload_stray, Kind.FILE_STRANGE, ("hybrid",)),
    Wound(hurt_files.file_gone, Kind.MESSAGE_MISSING, ("filesystem",)),
    Wound(hurt_files.file_damaged, Kind.BODY_LOST, ("filesystem",)),
    Wound(hurt_files.file_second, Kind.FILE_SECOND, ("filesystem",)),
    Wound(hurt_files.file_in_another_folder, Kind.FILE_MISPLACED, ("filesystem",)),
    Wound(hurt_files.file_strange, Kind.FILE_STRANGE, ("filesystem",)),
    Wound(hurt_files.checkpoint_damaged, Kind.CHECKPOINT_DAMAGED, ("filesystem",)),
)
CASES: Final = [(wound, store) for wound in WOUNDS for store in wound.stores]
NAMES: Final = [f"{wound.make.__name__}-{wound.kind}-{store}" for wound, store in CASES]


def hurt(make_bench: Callable[..., Bench], wound: Wound, store: str) -> tuple[Bench, Used]:
    """A stopped root with this wound."""
    bench = make_bench(store, segment_bytes=1500).open()
    used = use(bench)
    wound.make(bench, used)
    return bench, used
