select name, shards, case when resharding then 'its messages are being moved: relay reshard' else paused_reason end
  from relay.sinks
