-- Who showed signs of life in the newest epoch of a root, when last, and how long its pauses were.
with newest as (select device, root, max(epoch) epoch from snapshots group by all),
ends as (
    select s.device, s.root, s.epoch, arg_max(engine_ms, as_of_event) end_ms
    from snapshots s semi join newest using (device, root, epoch) group by all
), lives as (
    select device, root, epoch, queue, consumer, engine_ms from native
    where type = 'leased' and of_dead is distinct from true and consumer is not null
    union all
    select distinct device, root, epoch, queue, consumer, unnest([asked_engine_ms, delivered_engine_ms]) from consumers
), pauses as (
    select *, lead(engine_ms) over (partition by device, root, queue, consumer order by engine_ms) - engine_ms pause
    from lives join ends using (device, root, epoch) where engine_ms is not null
)
select device, root, queue, consumer, max(engine_ms) last_active_engine_ms, max(end_ms) - max(engine_ms) silent_ms,
       count(*) active, floor(quantile_cont(pause, 0.9))::bigint usual_ms
from pauses group by all
