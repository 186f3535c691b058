-- What snapshots counted, by hour; and what a queue holds at the last place of an hour: what the last snapshot before it
-- counted and what came and went since, or what the next one counted less what came and went until then.
with places as (
    select device, root, queue, coalesce(date_trunc('hour', wall_at), day::timestamptz) as hour, day, max((epoch, event)) place,
           count(*) filter (is_change) events
    from (select *, true is_change from depth_changes union all select * exclude (snapshot), false from depth_levels) group by all
), ends as (
    select p.*, arg_max(l.live, (l.epoch, l.event)) filter ((l.epoch, l.event) <= place) counted,
        max((l.epoch, l.event)) filter ((l.epoch, l.event) <= place) since,
        arg_min(l.live, (l.epoch, l.event)) later, min((l.epoch, l.event)) until
    from places p left join depth_levels l using (device, root, queue) group by all
), told_ends as (
    select device, root, queue, hour, day, events, case
        when since is not null then counted + coalesce((select sum(live) from depth_changes c where (c.device, c.root, c.queue) = (ends.device, ends.root, ends.queue)
            and (c.epoch, c.event) > since and (c.epoch, c.event) <= place), 0)
        when until is not null then later - coalesce((select sum(live) from depth_changes c where (c.device, c.root, c.queue) = (ends.device, ends.root, ends.queue)
            and (c.epoch, c.event) > place and (c.epoch, c.event) <= until), 0)
        else (select sum(live) from depth_changes c where (c.device, c.root, c.queue) = (ends.device, ends.root, ends.queue) and (c.epoch, c.event) <= place) end::bigint live_end
    from ends
), counted as (
    select device, root, queue, coalesce(date_trunc('hour', wall_at), day::timestamptz) as hour, day, count(*) snapshots,
           max(ready) ready_max, arg_max(ready, (epoch, as_of_event, engine_ms, snapshot)) ready_last,
           arg_max(dead, (epoch, as_of_event, engine_ms, snapshot)) dead_last
    from queue_depth group by all
)
select device, root, queue, hour, day, coalesce(snapshots, 0) snapshots, ready_max, ready_last, dead_last, coalesce(events, 0) events, live_end
from counted full join told_ends using (device, root, queue, hour, day)
