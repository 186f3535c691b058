-- What changes a queue, and what snapshots count of it: both questions about depth are asked of these.
create view depth_changes as with restored as (
    select device, root, epoch, min(event) begins from events group by all
), told as (
    select e.*, case
        when type in ('died', 'quarantined') or (type = 'leased' and of_dead) or (type = 'released' and state = 'dead') then 'dead'
        when type not in ('acked', 'dropped', 'lease_extended') then 'alive' end says
    from events e where message is not null and not exists (
        from restored r where (r.device, r.root) = (e.device, e.root) and r.epoch > e.epoch and r.begins <= e.event)
), ended as (
    select t.device, t.root, t.epoch, t.event,
        arg_max(b.says, (b.epoch, b.event)) filter (b.says is not null) before
    from told t left join told b on (b.device, b.root, b.message) = (t.device, t.root, t.message) and (b.epoch, b.event) < (t.epoch, t.event)
    where t.type in ('acked', 'dropped') group by all
)
select device, root, epoch, event, queue, 1 live, wall_at, day from told where type = 'published'
union all select device, root, epoch, event, queue, -1, wall_at, day from told
    where type = 'died' or (type = 'moved' and coalesce("to", queue) <> queue)
union all select device, root, epoch, event, coalesce("to", queue), 1, wall_at, day from told
    where type = 'reprocessed' or (type = 'moved' and coalesce("to", queue) <> queue)
union all select device, root, epoch, event, queue, 0, wall_at, day from told
    where type = 'reprocessed' and coalesce("to", queue) <> queue
union all select t.device, t.root, t.epoch, t.event, t.queue, case when before = 'dead' then 0 else -1 end, wall_at, day
    from told t join ended using (device, root, epoch, event);

create view depth_levels as with restored as (
    select device, root, epoch, min(event) begins from events group by all
)
select q.device, q.root, q.epoch, q.as_of_event event, q.queue, q.snapshot, q.ready + q.inflight + q.delayed + q.held live, q.wall_at, q.day
from queue_depth q join snapshots s using (device, snapshot) where s.consistent and not exists (
    from restored r where (r.device, r.root) = (q.device, q.root) and r.epoch > q.epoch and r.begins <= q.as_of_event);
