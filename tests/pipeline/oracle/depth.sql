-- What each queue held after each change, and at each snapshot: counted by the last snapshot before, or by the next one.
with places as (
    select device, root, epoch, event, queue, '' snapshot, wall_at from depth_changes
    union all select device, root, epoch, event, queue, snapshot, wall_at from depth_levels
), ends as (
    -- An event's own place is before that of a snapshot that was taken behind it.
    select p.*,
        arg_max(l.live, (l.epoch, l.event)) filter ((l.epoch, l.event, l.snapshot) <= (p.epoch, p.event, p.snapshot)) counted,
        max((l.epoch, l.event)) filter ((l.epoch, l.event, l.snapshot) <= (p.epoch, p.event, p.snapshot)) since,
        arg_min(l.live, (l.epoch, l.event)) later, min((l.epoch, l.event)) until
    from places p left join depth_levels l using (device, root, queue) group by all
)
select device, root, epoch, event, queue, snapshot, wall_at, case
    when since is not null then counted + coalesce((select sum(live) from depth_changes c where (c.device, c.root, c.queue) = (ends.device, ends.root, ends.queue)
        and (c.epoch, c.event) > since and (c.epoch, c.event) <= (ends.epoch, ends.event)), 0)
    when until is not null then later - coalesce((select sum(live) from depth_changes c where (c.device, c.root, c.queue) = (ends.device, ends.root, ends.queue)
        and (c.epoch, c.event) > (ends.epoch, ends.event) and (c.epoch, c.event) <= until), 0)
    else (select sum(live) from depth_changes c where (c.device, c.root, c.queue) = (ends.device, ends.root, ends.queue)
        and (c.epoch, c.event) <= (ends.epoch, ends.event)) end::bigint live_depth
from ends
