select device, root, queue, day, coalesce(date_trunc('hour', wall_at), day::timestamptz) as hour,
       count(*) filter (type = 'published') published,
       count(*) filter (type = 'leased' and of_dead is distinct from true) leased,
       count(*) filter (type = 'acked') acked, count(*) filter (type = 'retried') retried,
       count(*) filter (type = 'died') died, count(*) filter (type = 'dropped') dropped,
       count(*) filter (type = 'moved') moved, count(*) filter (type = 'reprocessed') reprocessed,
       count(*) filter (type = 'released') released,
       coalesce(sum(payload_bytes) filter (type = 'published'), 0) published_bytes
from events
where type in ('published', 'acked', 'released', 'retried', 'died', 'dropped', 'reprocessed', 'moved')
   or (type = 'leased' and of_dead is distinct from true)
group by all
