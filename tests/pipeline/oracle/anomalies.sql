-- Hours of the past and peers of a day, one figure at a time.
with figures as (
    select k.device, q.queue, 'hour' period, k.hour, m.metric,
        coalesce((select sum(case m.metric when 'retried' then retried when 'died' then died else dropped end) from throughput t
                  where (t.device, t.queue, t.hour) = (k.device, q.queue, k.hour)), 0)::double v,
        case m.metric when 'died' then 3 else 5 end floor
    from (select distinct device, coalesce(date_trunc('hour', wall_at), day::timestamptz) as hour from events) k
    join (select device, queue, min(hour) begun from throughput group by all) q on q.device = k.device and q.begun <= k.hour
    cross join (select unnest(['retried', 'died', 'dropped']) metric) m
), numbered as (
    select *, row_number() over (partition by device, queue, metric order by hour) nr from figures
), past as (
    select f.device, f.queue, f.metric, f.hour, f.v, f.floor, list(p.v) earlier
    from numbered f join numbered p on (p.device, p.queue, p.metric) = (f.device, f.queue, f.metric) and p.nr between f.nr - 168 and f.nr - 1
    group by all
), own as (
    select *, list_median(earlier) m, len(earlier) n, list_median([abs(x - list_median(earlier)) for x in earlier]) mad from past
), peers as (
    select *, median(v) over same m, count(*) over same n from figures window same as (partition by queue, metric, hour)
), fleet as (
    select *, median(abs(v - m)) over (partition by queue, metric, hour) mad from peers
), scored as (
    select device, queue, metric, hour, 'own' against, v, m, mad, n, (v - m) / greatest(1.4826 * mad, 0.25 * m, floor) z from own where n >= 24
    union all
    select device, queue, metric, hour, 'fleet', v, m, mad, n, (v - m) / greatest(1.4826 * mad, 0.25 * m, floor) from fleet where n >= 5
)
select device, queue, 'hour' period, metric, hour begins_at, against, v as value, m as median, mad, n, z from scored where z >= 6
