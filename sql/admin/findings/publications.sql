-- Publications that make every change of a row expensive, and those that no identity of rows can serve.
select format('publication %s covers relay.%s, so every claim and delivery writes whole rows to WAL: leave the schema relay'
              ' out of it, or let it publish inserts only', i.published_by, i.name)
  from relay.identities i
 where i.is_full and i.needs_full and current_setting('wal_level') = 'logical'
 union all
select format('relay.%s keeps replica identity full, which makes changes expensive and which no publication needs:'
              ' relay migrate', i.name)
  from relay.identities i
 where i.is_full and not i.needs_full and current_setting('wal_level') = 'logical'
 union all
select format('publication %s leaves out columns of relay.%s, so PostgreSQL refuses to change rows and nothing is'
              ' delivered: let it publish all columns, or inserts only', i.refused_by, i.name)
  from relay.identities i
 where i.refused_by is not null
