-- Tables with row security, unless a policy shows everything to everybody; and whether it holds for this role.
select c.relname::text, pg_catalog.row_security_active(c.oid)
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 where n.nspname = 'relay' and c.relrowsecurity
   and not (exists (select from pg_catalog.pg_policy p
                     where p.polrelid = c.oid and p.polpermissive and p.polcmd = '*'
                       and (0 = any(p.polroles) or current_user::regrole::oid = any(p.polroles))
                       and pg_catalog.pg_get_expr(p.polqual, p.polrelid) = 'true'
                       and coalesce(pg_catalog.pg_get_expr(p.polwithcheck, p.polrelid), 'true') = 'true')
            and not exists (select from pg_catalog.pg_policy p where p.polrelid = c.oid and not p.polpermissive))
 order by c.relname
