-- Takes the lock for its owner, or gives it a place in line.
--
-- KEYS: lock, token counter, line, places, bar
-- ARGV: owner, TTL in ms, how long a place lasts without a look in ms, the owner's inbox, note
-- Returns {1, token}, {0, how many are in front, ms until the lock ends by itself or -1}, or {2} when barred.
local lock, counter, line, places, bar = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, ttl, place_ms, inbox, note = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local mine = 'kilit1 ' .. owner .. ' '

local value = redis.call('GET', lock)
if value and string.sub(value, 1, #mine) == mine then
    -- Asked again, since the answer was lost.
    redis.call('PEXPIRE', lock, ttl)
    return {1, string.match(value, '^%S+ %S+ (%d+)')}
end

local time = redis.call('TIME')
local now = time[1] .. string.format('%06d', time[2])
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

-- Who is first in line and looks still.
local function head()
    while true do
        local first = redis.call('ZRANGE', line, 0, 0)[1]
        if not first then return end
        local place = redis.call('HGET', places, first)
        if place and tonumber(string.match(place, '^%d+')) > now_ms then return first, place end
        redis.call('ZREM', line, first)
        redis.call('HDEL', places, first)
    end
end

local in_line = redis.call('EXISTS', line, bar) > 0
if in_line and redis.call('EXISTS', bar) == 1 then return {2} end

local first = in_line and head()
if value or (first and first ~= owner) then
    redis.call('ZADD', line, 'NX', now, owner)
    redis.call('HSET', places, owner, string.format('%.0f', now_ms + place_ms) .. ' ' .. inbox .. ' ' .. note)
    if redis.call('PTTL', line) < tonumber(place_ms) then
        redis.call('PEXPIRE', line, place_ms)
        redis.call('PEXPIRE', places, place_ms)
    end
    local ahead = redis.call('ZRANK', line, owner)
    if value then return {0, ahead + 1, redis.call('PTTL', lock)} end
    return {0, ahead, -1}
end

-- Whichever is later: the last token and one, or now. Numbers here are doubles, so tokens are compared as text.
local token = now
local last = redis.call('GET', counter)
if last and (#last > #now or (#last == #now and last >= now)) then
    redis.call('INCR', counter)
    token = redis.call('GET', counter)
    redis.call('PEXPIREAT', counter, string.format('%.0f', tonumber(string.sub(token, 1, -4)) + 86400000))
else
    redis.call('SET', counter, now, 'PXAT', string.format('%.0f', now_ms + 86400000))
end
redis.call('SET', lock, mine .. token .. ' ' .. now .. ' ' .. ttl .. ' ' .. note, 'NX', 'PX', ttl)

if first then
    redis.call('ZREM', line, owner)
    redis.call('HDEL', places, owner)
    local next, place = head()
    if next then redis.pcall('PUBLISH', string.match(place, '^%d+ (%S+)'), 'head ' .. next) end
end
return {1, token}
