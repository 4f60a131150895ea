# Prints the pages of Sidekiq's Web UI that its arguments name: path => [HTTP status, body], as JSON.

require "json"
require "rack"
require "rack/mock"
require "sidekiq/web"

pages = ARGV.to_h do |path|
  env = Rack::MockRequest.env_for(path, "rack.session" => {})
  status, _, body = Sidekiq::Web.new.call(env)
  text = +""
  body.each { |part| text << part }
  [path, [status, text.force_encoding("UTF-8")]]
end
puts JSON.generate(pages)
