with spans as (
    select device, queue, day, unnest(['publish_to_lease', 'lease_to_ack', 'publish_to_ack']) measure,
           unnest([first_leased_engine_ms - published_engine_ms, acked_engine_ms - last_leased_engine_ms,
                   acked_engine_ms - published_engine_ms]) ms
    from messages m
    where coalesce(reprocessed, 0) = 0 and not exists (
        from events i join events p on (p.device, p.root, p.epoch, p.request_end) = (i.device, i.root, i.epoch, i.request_end)
        where i.type = 'imported' and p.type = 'published' and (p.device, p.root, p.message) = (m.device, m.root, m.message))
), counted as (
    select *, case when ms < 128 then ms else ms - ms % wide + wide - 1 end upto
    from (select *, case when ms >= 128 then 1::bigint << (floor(log2(ms))::bigint - 6) end wide from spans where ms >= 0)
), buckets as (
    select device, queue, day, measure, list({'upto_ms': upto::bigint, 'count': n} order by upto) buckets
    from (select device, queue, day, measure, upto, count(*) n from counted group by all) group by all
)
select * from (
    select device, queue, day, measure, count(*) count, quantile_disc(ms, 0.5) p50_ms, quantile_disc(ms, 0.9) p90_ms,
           quantile_disc(ms, 0.99) p99_ms, max(ms) max_ms
    from counted group by all
) join buckets using (device, queue, day, measure)
