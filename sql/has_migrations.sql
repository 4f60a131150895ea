select to_regclass('relay.migrations') is not null
