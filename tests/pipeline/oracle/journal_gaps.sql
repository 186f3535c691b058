-- Every id between the ends of what is known, asked one by one: is it there, and if not, who should have it?
with epochs as (
    select device, root, epoch, coalesce(min(event) filter (type = 'epoch_started'), min(event)) begins
    from events group by all
), first_epochs as (select device, root, min(epoch) oldest from epochs group by all),
headers as (
    select device, root, epoch header, first_event lo, last_event hi, 'lost' gap from snapshots where first_event is not null
    union all
    select device, root, epoch, h[1], h[2], 'reported'
    from (select device, root, epoch, unnest(from_json(holes, '[["BIGINT"]]')) h from snapshots where holes is not null)
    union all
    select device, root, epoch, previous_event + 1, available_from - 1, 'retired' from snapshots where available_from > previous_event + 1
), pieces as (
    select h.device, h.root, e.epoch, h.gap,
           case when e.epoch = oldest then h.lo else greatest(h.lo, e.begins) end lo,
           least(h.hi, (select min(k.begins) - 1 from epochs k where (k.device, k.root) = (h.device, h.root)
                        and k.epoch > e.epoch and k.epoch <= h.header)) hi
    from headers h join epochs e on (e.device, e.root) = (h.device, h.root) and e.epoch <= h.header
    join first_epochs f on (f.device, f.root) = (h.device, h.root)
), covers as (
    select device, root, epoch, lo, hi from pieces where lo <= hi
    union all select device, root, epoch, event, event from events
), ids as (
    select device, root, epoch, unnest(range(lo, hi + 1)) id
    from (select device, root, epoch, min(lo) lo, max(hi) hi from covers group by all)
), missing as (
    select i.*, case
        when exists (from pieces p where (p.device, p.root, p.epoch) = (i.device, i.root, i.epoch) and id between lo and hi and gap = 'reported') then 'reported'
        when exists (from pieces p where (p.device, p.root, p.epoch) = (i.device, i.root, i.epoch) and id between lo and hi and gap = 'lost') then 'lost'
        when exists (from pieces p where (p.device, p.root, p.epoch) = (i.device, i.root, i.epoch) and id between lo and hi and gap = 'retired') then 'retired'
        else 'not_exported' end gap
    from ids i anti join events e on (e.device, e.root, e.epoch, e.event) = (i.device, i.root, i.epoch, i.id)
    where not exists (from events g where g.type = 'gap' and g.ext->>'unused' = 'true'
        and (g.device, g.root, g.epoch) = (i.device, i.root, i.epoch) and id > (g.ext->>'after')::bigint and id < g.event)
), gaps as (
    select device, root, epoch, gap, min(id) first_event, max(id) last_event, count(*) events
    from (select *, id - row_number() over (partition by device, root, epoch, gap order by id) island from missing)
    group by device, root, epoch, gap, island
)
select g.*, b.wall_at before_at, a.wall_at after_at from gaps g
left join events b on (b.device, b.root, b.epoch, b.event) = (g.device, g.root, g.epoch, g.first_event - 1)
left join events a on (a.device, a.root, a.epoch, a.event) = (g.device, g.root, g.epoch, g.last_event + 1)
