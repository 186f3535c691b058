-- What had ever come to a queue, and gone from it, by the time of each snapshot; a span is the difference of two.
with epochs as (
    select device, root, epoch, coalesce(min(event) filter (type = 'epoch_started'), min(event)) begins
    from events group by all
), ordered as (
    select *, row_number() over (partition by device, root order by epoch, as_of_event) number
    from snapshots where consistent
), openings as (
    select o.device, o.root, 0::bigint number, o.epoch, o.first_event - 1 as_of_event, '' snapshot, o.first_event - 1 up_to
    from ordered o where number = 1
        and exists (from queue_depth q where (q.device, q.snapshot) = (o.device, o.snapshot) and q.opening is not null)
), moments as (
    select device, root, number, epoch, as_of_event, snapshot, as_of_event up_to from ordered union all from openings
), past as (
    select m.device, m.root, m.number, e.event, e.epoch, e.type, e.queue, coalesce(e.to, e.queue) target, e.reason_code
    from moments m join events e on (e.device, e.root) = (m.device, m.root) and e.event <= m.up_to and e.epoch <= m.epoch
    where not exists (from epochs k where (k.device, k.root) = (e.device, e.root) and k.epoch > e.epoch
                      and k.epoch <= m.epoch and k.begins <= e.event)
), queues as (
    select distinct device, root, queue from queue_depth
    union select distinct device, root, queue from events where queue is not null and type <> 'paused'
    union select distinct device, root, "to" from events where "to" is not null
), sums as (
    select m.*, q.queue,
        (select count(*) from past p where (p.device, p.root, p.number) = (m.device, m.root, m.number)) told,
        (select count(*) from past p where (p.device, p.root, p.number, p.queue) = (m.device, m.root, m.number, q.queue) and type = 'published') published,
        (select count(*) from past p where (p.device, p.root, p.number, p.queue) = (m.device, m.root, m.number, q.queue) and type = 'acked') acked,
        (select count(*) from past p where (p.device, p.root, p.number, p.queue) = (m.device, m.root, m.number, q.queue) and type = 'dropped' and reason_code = 'MESSAGE_EXPIRED') dropped_expired,
        (select count(*) from past p where (p.device, p.root, p.number, p.queue) = (m.device, m.root, m.number, q.queue) and type = 'dropped' and reason_code = 'PURGED') dropped_purged,
        (select count(*) from past p where (p.device, p.root, p.number, p.queue) = (m.device, m.root, m.number, q.queue) and type = 'dropped' and reason_code = 'QUEUE_FULL') dropped_limits,
        (select count(*) from past p where (p.device, p.root, p.number, p.queue) = (m.device, m.root, m.number, q.queue) and type = 'dropped' and coalesce(reason_code, '') not in ('MESSAGE_EXPIRED', 'PURGED', 'QUEUE_FULL')) dropped_failed,
        (select count(*) from past p where (p.device, p.root, p.number, p.target) = (m.device, m.root, m.number, q.queue) and type in ('moved', 'reprocessed') and target <> queue) moved_in,
        (select count(*) from past p where (p.device, p.root, p.number, p.queue) = (m.device, m.root, m.number, q.queue) and type in ('moved', 'reprocessed') and target <> queue) moved_out,
        coalesce((select ready + inflight + delayed + held + dead from queue_depth d
                  where (d.device, d.snapshot, d.queue) = (m.device, m.snapshot, q.queue)), 0) present,
        coalesce((select opening from queue_depth d join ordered o on (o.device, o.snapshot) = (d.device, d.snapshot)
                  where o.number = 1 and (o.device, o.root, d.queue) = (m.device, m.root, q.queue)), 0) at_first
    from moments m join queues q using (device, root)
)
select b.device, b.root, b.queue, b.snapshot to_snapshot, a.snapshot from_snapshot,
       case when a.number = 0 then b.at_first else a.present end opening,
       b.published - a.published published, b.acked - a.acked acked, b.moved_in - a.moved_in moved_in,
       b.moved_out - a.moved_out moved_out, b.present,
       b.dropped_expired - a.dropped_expired dropped_expired, b.dropped_purged - a.dropped_purged dropped_purged,
       b.dropped_limits - a.dropped_limits dropped_limits, b.dropped_failed - a.dropped_failed dropped_failed,
       b.up_to - a.up_to - (b.told - a.told) missing_events
from sums a join sums b on (b.device, b.root, b.queue, b.number) = (a.device, a.root, a.queue, a.number + 1)
where [opening, b.published - a.published, b.acked - a.acked, b.moved_in - a.moved_in, b.present] <> [0, 0, 0, 0, 0]
