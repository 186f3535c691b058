"""``python -m bench.readers ENGINE DIR OUT``: one machine's engines take the same snapshots in, for ``bench pipeline``.

Each reads all lines with all columns of the format, writes the events once each, and the messages as their events tell
them, as Parquet with zstd, and counts dead letters by day and reason. What the pipeline does besides is left out: it
judges snapshots and files, keeps what is refused and all lines, hashes files, and adds to tables that are there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from postroom_common.snapshot import COMMON, FIELDS, Field, Kind, Type

_FIELDS: Final = {field.name: field for field in (*COMMON, *(field for kind in Kind for field in FIELDS[kind]))}
_KEY: Final = ("device", "root", "epoch", "event")
_STATES: Final = {"published": "open", "acked": "acked", "died": "dead", "dropped": "dropped", "reprocessed": "open"}


def duckdb(source: Path, out: Path) -> dict[str, Any]:
    """By DuckDB: one statement reads, the others work on what was read."""
    import duckdb as engine

    names = {Type.INTEGER: "BIGINT", Type.NUMBER: "DOUBLE", Type.BOOLEAN: "BOOLEAN", Type.STRING: "VARCHAR"}
    names |= {Type.COUNTS: "MAP(VARCHAR, BIGINT)", Type.JSON: "JSON"}
    columns = ", ".join(f"'{name}': '{names[field.type]}'" for name, field in _FIELDS.items())
    base = engine.connect(str(out / "lines.duckdb"))
    base.execute("SET preserve_insertion_order = false")
    base.execute("SET memory_limit = '1GB'")
    told = f"read_json('{source}/**/*.gz', format = 'newline_delimited', columns = {{{columns}}}, filename = true)"
    base.execute(f"CREATE TABLE lines AS SELECT * FROM {told}")
    events = ", ".join(f'"{field.name}"' for field in FIELDS[Kind.EVENT])
    base.execute(
        f"COPY (SELECT DISTINCT ON ({', '.join(_KEY)}) device, snapshot, {events} FROM lines WHERE kind = 'event')"
        f" TO '{out}/events.parquet' (COMPRESSION zstd)"
    )
    states = "CASE type " + " ".join(f"WHEN '{name}' THEN '{state}'" for name, state in _STATES.items()) + " END"
    place = "(epoch, event)"
    base.execute(
        f"""COPY (
            SELECT device, root, message, arg_min(queue, {place}) AS queue, count(*) AS events,
                   count(*) FILTER (type = 'leased') AS leases, max(attempt) AS attempts,
                   min("engineMs") FILTER (type = 'published') AS published_engine_ms,
                   max("engineMs") FILTER (type = 'acked') AS acked_engine_ms,
                   max("engineMs") FILTER (type = 'died') AS died_engine_ms,
                   arg_max({states}, {place}) FILTER ({states} IS NOT NULL) AS state,
                   CAST(to_timestamp(min("wallMs") / 1000) AT TIME ZONE 'UTC' AS DATE) AS day
            FROM '{out}/events.parquet' WHERE message IS NOT NULL GROUP BY ALL
        ) TO '{out}/messages.parquet' (COMPRESSION zstd)"""
    )
    died = base.execute(f"SELECT count(*) FROM '{out}/events.parquet' WHERE type = 'died'").fetchall()
    base.execute(
        f"""COPY (SELECT day, queue, state, count(*) AS messages FROM '{out}/messages.parquet' GROUP BY ALL)
            TO '{out}/fates.parquet'"""
    )
    counted = base.execute(f"SELECT count(*) FROM '{out}/events.parquet'").fetchall()
    states_ = base.execute(f"SELECT state, count(*) FROM '{out}/messages.parquet' GROUP BY ALL ORDER BY 1").fetchall()
    return {"events": counted[0][0], "died": died[0][0], "messages": dict(states_)}


def polars(source: Path, out: Path) -> dict[str, Any]:
    """By Polars: the events are read by its lazy reader of lines, with all columns."""
    import polars as engine

    types: dict[Type, Any] = {Type.INTEGER: engine.Int64, Type.NUMBER: engine.Float64, Type.BOOLEAN: engine.Boolean}

    def type_of(field: Field) -> Any:
        return types.get(field.type, engine.String)

    paths = sorted(source.rglob("*.gz"))
    lines = engine.scan_ndjson(paths, schema={name: type_of(field) for name, field in _FIELDS.items()})
    column = engine.col
    state = column("type").replace_strict(_STATES, default=None)
    all_lines = lines.collect(engine="streaming")
    told = all_lines.lazy().filter(column("kind") == "event").select("device", "snapshot", *_names(Kind.EVENT))
    events = told.unique(subset=_KEY, keep="any").collect(engine="streaming")
    del all_lines
    events.write_parquet(out / "events.parquet", compression="zstd")
    messages = (
        events.lazy()
        .filter(column("message").is_not_null())
        .sort("epoch", "event")
        .group_by("device", "root", "message")
        .agg(
            column("queue").first(),
            engine.len().alias("events"),
            (column("type") == "leased").sum().alias("leases"),
            column("attempt").max().alias("attempts"),
            column("engineMs").filter(column("type") == "published").min().alias("published_engine_ms"),
            column("engineMs").filter(column("type") == "acked").max().alias("acked_engine_ms"),
            column("engineMs").filter(column("type") == "died").max().alias("died_engine_ms"),
            state.drop_nulls().last().alias("state"),
            engine.from_epoch(column("wallMs").min(), time_unit="ms").dt.date().alias("day"),
        )
        .collect(engine="streaming")
    )
    messages.write_parquet(out / "messages.parquet", compression="zstd")
    messages.group_by("day", "queue", "state").len().write_parquet(out / "fates.parquet")
    counted = dict(messages.group_by("state").len().sort("state").iter_rows())
    return {"events": events.height, "died": events.filter(column("type") == "died").height, "messages": counted}


def _names(kind: Kind) -> list[str]:
    return [field.name for field in FIELDS[kind]]


ENGINES: Final[dict[str, Callable[[Path, Path], dict[str, Any]]]] = {"duckdb": duckdb, "polars": polars}


if __name__ == "__main__":
    print(json.dumps(ENGINES[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))))
