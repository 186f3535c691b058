"""Faults in the files of a store."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.conformance.bench import Bench
from tests.daemon.populated_root import Keys
from tests.daemon.segment_files import flip


def store_gone(bench: Bench, keys: Keys) -> None:
    settings = bench.config.settings
    if settings.backend == "filesystem":
        shutil.rmtree(settings.filesystem_root)
    else:
        settings.sqlite_db_path.unlink()


def database_overwritten(bench: Bench, keys: Keys) -> None:
    bench.config.settings.sqlite_db_path.write_bytes(b"no database at all" * 500)


def payloads(bench: Bench) -> list[Path]:
    return sorted(path for path in bench.config.settings.hybrid_payload_root.rglob("*.json") if path.is_file())


def payload_of(bench: Bench, key: str) -> Path:
    return next(path for path in payloads(bench) if key.rpartition(":")[2] + ".json" in path.name)


def payload_gone(bench: Bench, keys: Keys) -> None:
    payload_of(bench, keys.ready[0]).unlink()


def payload_changed(bench: Bench, keys: Keys) -> None:
    flip(payload_of(bench, keys.ready[0]), 20)


def payload_orphan(bench: Bench, keys: Keys) -> None:
    path = payload_of(bench, keys.ready[0])
    shutil.copy(path, path.with_name(path.name.replace("message-", "strange-")))


def payload_misplaced(bench: Bench, keys: Keys) -> None:
    path = payload_of(bench, keys.ready[0])
    other = path.parent.with_name("00000007")
    other.mkdir()
    path.rename(other / path.name)


def payload_stray(bench: Bench, keys: Keys) -> None:
    payloads(bench)[0].with_name("README").write_text("not ours")


def file_of(bench: Bench, key: str) -> Path:
    root = bench.config.settings.filesystem_root
    return next(path for path in sorted(root.rglob("*.json")) if f"-{key.rpartition(':')[2]}~" in path.name)


def file_gone(bench: Bench, keys: Keys) -> None:
    file_of(bench, keys.ready[0]).unlink()


def file_damaged(bench: Bench, keys: Keys) -> None:
    flip(file_of(bench, keys.ready[0]), 40)


def file_second(bench: Bench, keys: Keys) -> None:
    path = file_of(bench, keys.ready[0])
    shutil.copy(path, path.with_name(path.name.replace("~v", "~v0")))


def file_in_another_folder(bench: Bench, keys: Keys) -> None:
    path = file_of(bench, keys.ready[0])
    path.rename(path.parent.with_name("delayed") / path.name)


def file_strange(bench: Bench, keys: Keys) -> None:
    file_of(bench, keys.ready[0]).with_name("notes.txt").write_text("not ours")


def checkpoint_damaged(bench: Bench, keys: Keys) -> None:
    flip(sorted((bench.config.settings.filesystem_root / "meta").iterdir())[-1], 30)
