-- Messages of roots that were never set back, by what their own events say, against the last snapshot.
with last as (
    select device, root, arg_max(snapshot, as_of_event) snapshot, max(as_of_event) as_of_event
    from snapshots where consistent group by all having min(epoch) = max(epoch)
), whole as (
    select device, root, bool_or(missing_events > 0 and not exists (
        from journal_gaps g where (g.device, g.root) = (a.device, a.root) and gap in ('lost', 'reported'))) vague
    from audit a where span = 'all' and queue = '' group by all
), told as (
    select e.device, e.root, e.message, last.snapshot,
           list(type order by event) types, list(event order by event) numbers
    from events e join last using (device, root) where message is not null and e.event <= as_of_event group by all
), judged as (
    select *, len(list_filter(types, lambda t: t in ('acked', 'dropped'))) ends,
        list_filter(types, lambda t: t in ('published', 'leased', 'retried', 'died', 'acked', 'dropped', 'reprocessed', 'moved'))[-1] fate,
        exists (from leases l where (l.device, l.snapshot, l.message) = (told.device, told.snapshot, told.message)) leased,
        exists (from dead_letters l where (l.device, l.snapshot, l.message) = (told.device, told.snapshot, told.message)) dead
    from told join whole using (device, root)
)
select device, root, message, case
    when ends > 1 then 'ended_twice'
    when ends = 1 and types[-1] not in ('acked', 'dropped') then 'back_after_end'
    when fate = 'died' and not dead then 'dead_but_gone' end finding
from judged where finding is not null and not vague
