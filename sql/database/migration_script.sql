-- One statement, which is all or nothing: run it by psql -v ON_ERROR_STOP=1 -f, or in a migration of your own tool.
do $relay_migration$
declare
  v_settings constant pg_catalog.text[] := '{{lock_timeout,statement_timeout,idle_in_transaction_session_timeout,search_path,'
                                'standard_conforming_strings}}';
  v_before constant pg_catalog.text[] := array(select pg_catalog.current_setting(s) from pg_catalog.unnest(v_settings) s);
begin
execute $begin$
{begin}
$begin$;

{steps}
-- Whoever runs it inside a transaction goes on with the settings of before.
perform pg_catalog.set_config(s.name, s.before, true) from rows from (unnest(v_settings), unnest(v_before)) s (name, before);
end
$relay_migration$;
