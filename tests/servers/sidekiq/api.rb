# Prints what Sidekiq's own API reads, as one JSON document. Times are seconds since 1970.

require "json"
require "sidekiq"
require "sidekiq/api"

def record(job)
  {
    jid: job.jid, class: job.klass, display_class: job.display_class, args: job.args, display_args: job.display_args,
    queue: job.queue, latency: job.latency, created_at: job.created_at&.to_f, enqueued_at: job.enqueued_at&.to_f,
  }
end

def sorted(set)
  set.map { |job| {**record(job), at: job.at.to_f, retry_count: job["retry_count"], error: job["error_class"]} }
end

puts JSON.generate(
  version: Sidekiq::VERSION,
  latency: Sidekiq::Stats.new.default_queue_latency,
  queues: Sidekiq::Queue.all.to_h { |queue|
    [queue.name, {size: queue.size, latency: queue.latency, jobs: queue.map { |job| record(job) }}]
  },
  scheduled: sorted(Sidekiq::ScheduledSet.new),
  retries: sorted(Sidekiq::RetrySet.new),
  dead: sorted(Sidekiq::DeadSet.new),
)
