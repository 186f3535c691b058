with failed as (
    select * from native e where type in ('retried', 'died', 'dropped')
        and coalesce(reason_code, '') not in ('MESSAGE_EXPIRED', 'QUEUE_FULL', 'PURGED', 'BODY_LOST')
        and not exists (from events s where (s.device, s.root) = (e.device, e.root) and s.type = 'epoch_started'
                        and s.epoch > e.epoch and s.event <= e.event)
), one as (
    select device, root, epoch, message, arg_max(queue, event) queue, count(*) failures, min(event) from_event, max(event) to_event,
           bool_or(reason_code = 'POISON') poison
    from failed group by all
)
select o.device, o.root, o.message, o.queue, o.failures, o.from_event, o.to_event,
    (select count(*) from native a where a.type = 'acked' and (a.device, a.root, a.queue) = (o.device, o.root, o.queue)
        and a.event between o.from_event and o.to_event) others_done,
    (select count(*) from failed f where f.message <> o.message and (f.device, f.root, f.queue) = (o.device, o.root, o.queue)
        and f.event between o.from_event and o.to_event) others_failed
from one o join messages m using (device, root, message)
where m.state <> 'acked' and (failures >= 3 or poison) and others_failed <= greatest(others_done, 2 * failures)
