-- For each publication: is there one of the same body not long before, in a queue whose bodies tell one message from another?
with p as (
    select * from native e where type = 'published' and payload_digest is not null
        and not exists (from events s where (s.device, s.root) = (e.device, e.root) and s.type = 'epoch_started'
                        and s.epoch > e.epoch and s.event <= e.event)
), runs as (
    select *, sum(case when gap <= 60000 then 0 else 1 end) over (partition by device, root, queue, payload_digest order by epoch, event) run
    from (select *, engine_ms - lag(engine_ms) over (partition by device, root, queue, payload_digest order by epoch, event) gap,
                 lag(event) over (partition by device, root, queue, payload_digest order by epoch, event) first_event from p)
), bodies as (
    select device, root, queue, payload_digest, count(*) n, max(run) > 1 or max(copies) > 5 repeats
    from (select *, count(*) over (partition by device, root, queue, payload_digest, run) copies from runs) group by all
), queues as (
    select device, root, queue from bodies group by all
    having sum(n) >= 20 and coalesce(sum(n) filter (repeats), 0) <= 0.1 * sum(n)
)
select device, root, epoch, event, 'published' outcome, first_event, gap apart_ms
from runs semi join queues using (device, root, queue) semi join (from bodies where not repeats) using (device, root, queue, payload_digest)
where gap <= 60000
union all
select e.device, e.root, e.epoch, e.event, 'recognised', f.event, e.engine_ms - f.engine_ms
from native e join native f on f.type = 'published' and (f.device, f.root) = (e.device, e.root) and f.message = e.ext ->> '$.reply.of'
where e.type = 'answered'
