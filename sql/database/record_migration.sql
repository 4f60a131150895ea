insert into relay.migrations (version, name) values (%(version)s, %(name)s)
