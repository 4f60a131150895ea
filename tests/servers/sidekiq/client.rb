# Pushes jobs by Sidekiq's own client: prints for each, as JSON, what it raises, or null.
#   client.rb '[{"class": "Note", "args": [], "tags": "blue"}, …]'
require "json"
require "sidekiq"

Sidekiq.logger.level = Logger::FATAL
answers = JSON.parse(ARGV[0], max_nesting: false).map do |job|
  Sidekiq::Client.push(job)
  nil
rescue => error
  error.class.name
end
puts JSON.generate(answers)
