select version from relay.migrations order by version
