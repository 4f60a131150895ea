-- Tables with row security, unless a policy shows everything to everybody, whoever asks here.
select format('row security is on for relay.%s and may hide rows from relays: alter table relay.%s disable row level'
              ' security', c.relname, c.relname)
  from pg_class c
 where c.relnamespace = 'relay'::regnamespace and c.relrowsecurity
   and not (exists (select from pg_policy p
                     where p.polrelid = c.oid and p.polpermissive and p.polcmd = '*' and 0 = any(p.polroles)
                       and pg_get_expr(p.polqual, p.polrelid) = 'true'
                       and coalesce(pg_get_expr(p.polwithcheck, p.polrelid), 'true') = 'true')
            and not exists (select from pg_policy p where p.polrelid = c.oid and not p.polpermissive))
 order by c.relname
