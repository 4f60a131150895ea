-- For the rest of the transaction: whoever is in the way is left alone after a fiftieth of a second.
select set_config('lock_timeout', '20ms', true)
