# Jobs that note in Redis that they ran: hash "runs", jid => how often; list "notes", what they were given.

require "json"
require "logger"
require "sidekiq"
require "active_job"
require "active_job/queue_adapters/sidekiq_adapter"

ActiveJob::Base.logger = Logger.new(File::NULL)

Sidekiq.configure_server do |config|
  config.on(:startup) { Sidekiq.redis { |redis| redis.call("SET", "started", 1) } }
end

def note(jid, **facts)
  Sidekiq.redis do |redis|
    redis.call("HINCRBY", "runs", jid, 1)
    redis.call("RPUSH", "notes", JSON.generate({jid: jid, **facts}))
  end
end

class Note
  include Sidekiq::Job

  def perform(*args)
    note(jid, by: "Note", args: args)
  end
end

class NoteActive < ActiveJob::Base
  def perform(*args)
    note(provider_job_id, by: "NoteActive", args: args, job_id: job_id, queue: queue_name, enqueued_at: enqueued_at.to_s)
  end
end

# Fails the first time it runs.
class Flaky
  include Sidekiq::Job
  sidekiq_retry_in { 1 }

  def perform(*args)
    note(jid, by: "Flaky", args: args)
    raise "the first time" if Sidekiq.redis { |redis| redis.call("HGET", "runs", jid) } == "1"
  end
end

class Failing
  include Sidekiq::Job

  def perform(*)
    raise ArgumentError, "always"
  end
end

class FailingActive < ActiveJob::Base
  def perform(*)
    raise ArgumentError, "always"
  end
end
