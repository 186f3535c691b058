-- What each queue held after each change, and at each snapshot: counted by the last snapshot before, or by the next one.
with restored as (
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
), changes as (
    select device, root, epoch, event, queue, 1 live, wall_at, day from told where type = 'published'
    union all select device, root, epoch, event, queue, -1, wall_at, day from told
        where type = 'died' or (type = 'moved' and coalesce("to", queue) <> queue)
    union all select device, root, epoch, event, coalesce("to", queue), 1, wall_at, day from told
        where type = 'reprocessed' or (type = 'moved' and coalesce("to", queue) <> queue)
    union all select device, root, epoch, event, queue, 0, wall_at, day from told
        where type = 'reprocessed' and coalesce("to", queue) <> queue
    union all select t.device, t.root, t.epoch, t.event, t.queue, case when before = 'dead' then 0 else -1 end, wall_at, day
        from told t join ended using (device, root, epoch, event)
), levels as (
    select q.device, q.root, q.epoch, q.as_of_event event, q.queue, q.snapshot, q.ready + q.inflight + q.delayed + q.held live, q.wall_at, q.day
    from queue_depth q join snapshots s using (device, snapshot) where s.consistent and not exists (
        from restored r where (r.device, r.root) = (q.device, q.root) and r.epoch > q.epoch and r.begins <= q.as_of_event)
), places as (
    select device, root, epoch, event, queue, '' snapshot, wall_at from changes
    union all select device, root, epoch, event, queue, snapshot, wall_at from levels
), ends as (
    -- An event's own place is before that of a snapshot that was taken behind it.
    select p.*,
        arg_max(l.live, (l.epoch, l.event)) filter ((l.epoch, l.event, l.snapshot) <= (p.epoch, p.event, p.snapshot)) counted,
        max((l.epoch, l.event)) filter ((l.epoch, l.event, l.snapshot) <= (p.epoch, p.event, p.snapshot)) since,
        arg_min(l.live, (l.epoch, l.event)) later, min((l.epoch, l.event)) until
    from places p left join levels l using (device, root, queue) group by all
)
select device, root, epoch, event, queue, snapshot, wall_at, case
    when since is not null then counted + coalesce((select sum(live) from changes c where (c.device, c.root, c.queue) = (ends.device, ends.root, ends.queue)
        and (c.epoch, c.event) > since and (c.epoch, c.event) <= (ends.epoch, ends.event)), 0)
    when until is not null then later - coalesce((select sum(live) from changes c where (c.device, c.root, c.queue) = (ends.device, ends.root, ends.queue)
        and (c.epoch, c.event) > (ends.epoch, ends.event) and (c.epoch, c.event) <= until), 0)
    else (select sum(live) from changes c where (c.device, c.root, c.queue) = (ends.device, ends.root, ends.queue)
        and (c.epoch, c.event) <= (ends.epoch, ends.event)) end::bigint live_depth
from ends
