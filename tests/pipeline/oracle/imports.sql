-- The requests that brought messages in.
select device, root, epoch, request_end from events where type = 'imported' and request_end is not null group by all
