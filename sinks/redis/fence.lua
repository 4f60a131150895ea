-- Pushes one batch at most once, whoever asks again.
--
-- KEYS: the mark of this claim, the marks of earlier claims, marks that may go; in a cluster then what is pushed to.
--       Elsewhere that is not among them: a queue that an ACL denies would refuse the whole call, and not only its own
--       messages.
-- ARGV: 1  seconds that a mark lives
--       2  how many earlier claims there are
--       3  how many marks may go
--       4  ids of the messages that are pushed, in that order: "12,13"
--       5  ids of the messages that the sender itself refuses
--       6  for an ordered sink a number for the key of each message that is pushed (0: none); else empty
--       7  "part" where this is not the whole claim, so that the mark must say which messages it speaks of
--       then for each earlier claim the ids of the messages that it held
--       then commands, each with the messages that it pushes:
--          n, n arguments of the command, how many messages, how many arguments a message, those arguments.
--          Where one without messages fails, the next one is not tried and fails with the same error.
--
-- A mark is "revoked", or "done" with a line "ID ERROR" for each message that was not delivered; that of a part also
-- has a line "= ID,ID,…" of all its messages. "open" counts as no mark: a script that dies half way leaves it, and a
-- second copy is better than a lost message.
--
-- Answers: {"revoked"}; {"refused", error}, nothing was pushed; {"done", id, error, id, error, …}, with BEFORE in place of
-- an error for each message that an earlier claim had pushed: it is delivered, and no mark lists it.

local TTL, EARLIER, GONE, FIRST = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), 7

local function error_of(reply)
  return type(reply) == 'table' and reply.err
end

local function each(list)
  return list:gmatch('%d+')
end

-- The failures that a "done" mark lists; nil for any other mark and for none.
local function failures_of(mark)
  if not mark or mark:sub(1, 4) ~= 'done' then return nil end
  local failures = {}
  for id, reason in mark:gmatch('\n(%d+) ([^\n]*)') do failures[id] = reason end
  return failures
end

-- The messages that a "done" mark of a part speaks of; nil where it speaks of its whole claim.
local function members_of(mark)
  local list = mark:match('\n= ([%d,]*)')
  if not list then return nil end
  local members = {}
  for id in each(list) do members[id] = true end
  return members
end

-- 1. What became of this claim?
local own = redis.pcall('GET', KEYS[1])
if error_of(own) then return {'refused', own.err} end
if own == 'revoked' then return {'revoked'} end
local before = failures_of(own)
if before then
  -- A write: since Redis 8, WAIT confirms at once where its own connection has written nothing.
  redis.pcall('EXPIRE', KEYS[1], TTL)
  local answer = {'done'}
  for id, reason in pairs(before) do
    answer[#answer + 1] = id
    answer[#answer + 1] = reason
  end
  return answer
end

-- 2. What became of earlier claims? One that has pushed nothing must not push any more.
local delivered = {}
for i = 1, EARLIER do
  local key = KEYS[1 + i]
  local mark = redis.pcall('GET', key)
  if error_of(mark) then return {'refused', mark.err} end
  local failures = failures_of(mark)
  if failures then
    local members = members_of(mark)
    for id in each(ARGV[FIRST + i]) do
      if not failures[id] and (not members or members[id]) then delivered[id] = true end
    end
  elseif mark ~= 'revoked' then
    local reply = redis.pcall('SET', key, 'revoked', 'EX', TTL)
    if error_of(reply) then return {'refused', reply.err} end
  end
end

-- The server looks whether it may write (memory, disk, replicas) until a script's first write has succeeded: a mark
-- goes first, so that a refusal comes before anything is pushed.
local opened = redis.pcall('SET', KEYS[1], 'open', 'EX', TTL)
if error_of(opened) then return {'refused', opened.err} end

-- 3. Push the rest. From here on nothing may end the script before its mark is "done".
local ids, keys, stuck, failed = {}, {}, {}, {}
for id in each(ARGV[4]) do ids[#ids + 1] = id end
for key in each(ARGV[6]) do keys[#keys + 1] = key end

local function fail(id, reason)
  failed[#failed + 1] = id
  failed[#failed + 1] = (reason:gsub('%s+', ' '))
end

for id in each(ARGV[5]) do
  if not delivered[id] then fail(id, 'SENDER') end
end

local at, position, unmet = FIRST + 1 + EARLIER, 0, false
while at <= #ARGV do
  local command, members = {}, {}
  for i = at + 1, at + ARGV[at] do command[#command + 1] = ARGV[i] end
  at = at + 1 + ARGV[at]
  local count, width = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  at = at + 2
  for _ = 1, count do
    position = position + 1
    if not delivered[ids[position]] then
      if keys[position] and stuck[keys[position]] then
        fail(ids[position], 'BEHIND')
      else
        members[#members + 1] = position
        for i = at, at + width - 1 do command[#command + 1] = ARGV[i] end
      end
    end
    at = at + width
  end
  if count == 0 then
    unmet = error_of(redis.pcall(unpack(command)))
  elseif #members > 0 then
    local reason = unmet or error_of(redis.pcall(unpack(command)))
    for _, member in ipairs(reason and members or {}) do
      fail(ids[member], reason)
      if keys[member] and keys[member] ~= '0' then stuck[keys[member]] = true end
    end
  end
  unmet = count == 0 and unmet
end

local mark = {'done'}
for i = 1, #failed, 2 do mark[#mark + 1] = failed[i] .. ' ' .. failed[i + 1] end
if ARGV[7] == 'part' then mark[#mark + 1] = '= ' .. ARGV[4] end
redis.call('SET', KEYS[1], table.concat(mark, '\n'), 'EX', TTL)
for i = EARLIER + 2, EARLIER + 1 + GONE do redis.pcall('DEL', KEYS[i]) end
for id in pairs(delivered) do
  failed[#failed + 1] = id
  failed[#failed + 1] = 'BEFORE'
end
table.insert(failed, 1, 'done')
return failed
