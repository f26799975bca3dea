-- The line of waiters, in front of the scripts that need it.

-- Milliseconds of the server's clock, and the same moment in µs as text: beyond 2^53 a number would not be exact.
local function server_time()
    local time = redis.call('TIME')
    return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000), time[1] .. string.sub('00000' .. time[2], -6)
end

-- Whether a place lasts still. One that ends far ahead was taken before the clock was set back.
local function lasts(place, now_ms)
    local left = place and tonumber(string.match(place, '^%d+')) - now_ms
    return left and left > 0 and left <= 10000
end

-- Who is first in line and looks still, and its place. The others in front are put out of it.
local function head(line, places, now_ms)
    while true do
        local first = redis.call('ZRANGE', line, 0, 0)[1]
        if not first then return end
        local place = redis.call('HGET', places, first)
        if lasts(place, now_ms) then return first, place end
        redis.call('ZREM', line, first)
        redis.call('HDEL', places, first)
    end
end

-- Tells whoever is first in line, at its inbox, what it is from now on: `head` of the line, or `free` to take the lock.
-- Without the right to publish it finds out by itself.
local function tell(what, first, place)
    if first then redis.pcall('PUBLISH', string.match(place, '^%d+ (%S+)'), what .. ' ' .. first) end
end

