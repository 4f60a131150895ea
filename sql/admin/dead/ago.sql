-- A time that is so long ago, by the only clock that counts.
select (clock_timestamp() - %(duration)s::interval)::text
