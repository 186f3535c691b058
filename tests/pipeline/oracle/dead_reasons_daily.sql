-- Deaths by reason, and the seven days before, each day looked up for itself.
with deaths as (
    select device, queue, coalesce(reason_code, '') reason_code, coalesce(cause, '') cause, day,
           count(*) deaths, count(distinct root || message) messages, min(message) example, max(wall_at) last_at
    from events where type = 'died' group by all
), known as (select distinct device, day from events),
week as (
    select d.device, d.queue, d.reason_code, d.cause, d.day,
           max(case when k.day = d.day - 1 then coalesce(p.deaths, 0) end) day_before,
           median(case when k.day is not null then coalesce(p.deaths, 0) end) week_median, count(k.day) week_days
    from deaths d
    left join known k on k.device = d.device and k.day >= d.day - 7 and k.day < d.day
    left join deaths p on (p.device, p.queue, p.reason_code, p.cause, p.day) = (d.device, d.queue, d.reason_code, d.cause, k.day)
    group by all
)
select *, deaths - day_before growth from deaths join week using (device, queue, reason_code, cause, day)
