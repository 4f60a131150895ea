-- One dead message without what it carries. (Bytes: as in dead_page.sql.)
select id, sink, convert_to(kind, getdatabaseencoding()), convert_to(key, getdatabaseencoding()), message_id,
       attempts, error, created_at, died_at, max_attempts, convert_to(dedupe_key, getdatabaseencoding()),
       coalesce(deaths, 0), coalesce(prior_tokens, '{}'), coalesce(past_errors, '{}')
  from relay.dead
 where id = %(id)s
