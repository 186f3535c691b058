-- Failed deliveries of which at least 20 lie in the five minutes up to them, half of all deliveries or more.
with hot as (
    select r.device, r.root, r.epoch, r.queue, r.engine_ms, r.event,
        (select min(x.engine_ms) from native x where x.type = 'retried' and (x.device, x.root, x.epoch, x.queue) = (r.device, r.root, r.epoch, r.queue)
            and x.engine_ms between r.engine_ms - 300000 and r.engine_ms) since,
        (select count(*) from native x where x.type = 'retried' and (x.device, x.root, x.epoch, x.queue) = (r.device, r.root, r.epoch, r.queue)
            and x.engine_ms between r.engine_ms - 300000 and r.engine_ms) retries,
        (select count(*) from native x where x.type = 'leased' and (x.device, x.root, x.epoch, x.queue) = (r.device, r.root, r.epoch, r.queue)
            and x.engine_ms between r.engine_ms - 300000 and r.engine_ms) leases
    from native r where r.type = 'retried'
), storms as (
    select device, root, epoch, queue, number, min(since) lo, max(engine_ms) hi from (
        select *, sum(case when since - before <= 300000 then 0 else 1 end) over (partition by device, root, epoch, queue order by engine_ms, event) number
        from (select *, lag(engine_ms) over (partition by device, root, epoch, queue order by engine_ms, event) before
              from hot where retries >= 20 and retries >= leases * 0.5))
    group by all
)
select s.device, s.root, s.epoch, s.queue, min(e.event) from_event, max(e.event) to_event, count(*) retries,
       count(distinct message) messages, mode(e.reason_code) reason_code
from storms s join native e on (e.device, e.root, e.epoch, e.queue) = (s.device, s.root, s.epoch, s.queue)
    and e.type = 'retried' and e.engine_ms between s.lo and s.hi
group by s.device, s.root, s.epoch, s.queue, s.number having count(distinct message) >= 3
