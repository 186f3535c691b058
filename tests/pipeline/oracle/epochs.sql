-- Each epoch, and the event that started it; of one whose start nobody tells, the first event that is known.
select device, root, epoch, coalesce(min(event) filter (type = 'epoch_started'), min(event)) begins, max(event) ends from events group by all
