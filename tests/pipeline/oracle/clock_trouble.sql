-- A device's difference of clocks, and its boots, one event after the other.
with seen as (
    select *, wall_ms - engine_ms apart, lag(wall_ms - engine_ms) over o apart_before, lag(clock_suspect) over o was_suspect,
           lag(clean) over o was_clean, lag(engine_ms) over o engine_before,
           last_value(case when type = 'clock_marked' then boot_id end ignore nulls)
               over (partition by device, root, epoch order by event rows between unbounded preceding and 1 preceding) boot_before
    from native where type not in ('gap', 'epoch_started')
    window o as (partition by device, root, epoch order by event)
), told as (
    select *, coalesce(type = 'clock_marked' and boot_id <> boot_before, false) boots,
           coalesce(abs(apart - apart_before) >= 5000, false) parts
    from seen
)
select device, root, epoch, event, 'step' trouble, wall_ms, engine_ms from told where parts and not boots
union all select device, root, epoch, event, 'boot_step', wall_ms, engine_ms from told where parts and boots
union all select device, root, epoch, event, 'boot', wall_ms, engine_ms from told where boots and was_clean
union all select device, root, epoch, event, 'power_cut', wall_ms, engine_ms from told where boots and was_clean is distinct from true
union all select device, root, epoch, event, 'wrong_year', wall_ms, engine_ms from told where clock_suspect and was_suspect is distinct from true
union all select device, root, epoch, event, 'engine_back', wall_ms, engine_ms from told where engine_ms < engine_before
