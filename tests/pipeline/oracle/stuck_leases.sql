with usual as (
    select device, root, queue, count(*) measured, quantile_disc(held_ms, 0.9) usual_ms
    from native where type = 'acked' and held_ms >= 0 group by all
), shown as (
    select *, engine_ms - coalesce(leased_engine_ms, engine_ms) held, greatest(engine_ms - coalesce(until_engine_ms, engine_ms), 0) overdue,
        count(*) over same seen, row_number() over (same order by epoch desc, as_of_event desc, engine_ms desc, snapshot desc) back
    from leases anti join (from snapshots where role <> 'leads') using (device, snapshot) window same as (partition by device, root, queue, message, coalesce(leased_engine_ms, 0))
)
select device, root, queue, message, coalesce(leased_engine_ms, 0) leased_engine_ms, consumer, held held_ms, overdue overdue_ms, seen, snapshot, measured, usual_ms,
       case when overdue >= 60000 then 'overdue' else 'held' end why
from shown left join usual using (device, root, queue)
where back = 1 and (overdue >= 60000
    or held >= case when measured >= 20 then greatest(900000, 10 * usual_ms) else 21600000 end)
