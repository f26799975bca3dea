-- Takes locks for their owners, or gives them a place in line.
--
-- KEYS for each: lock, the token counter, which is the same for all, line, places, bar
-- ARGV for each: owner, TTL in ms, how long a place lasts without a look in ms, the owner's inbox, note
-- Returns for each its token, or {how many are in front, ms until the lock ends by itself or -1}, or 0 when barred.
local now_ms, now = server_time()

-- The token of all that is granted in this call: whichever is later, the last one and one, or now. Numbers here are
-- doubles, so tokens are compared as text.
local drawn
local function draw()
    if drawn then return drawn end
    local counter = KEYS[2]
    local last = redis.call('GET', counter)
    if last and (#last > #now or (#last == #now and last >= now)) then
        redis.call('INCR', counter)
        drawn = redis.call('GET', counter)
        redis.call('PEXPIREAT', counter, string.format('%.0f', tonumber(string.sub(drawn, 1, -4)) + 86400000))
    else
        redis.call('SET', counter, now, 'PXAT', string.format('%.0f', now_ms + 86400000))
        drawn = now
    end
    return drawn
end

local function take(k, a)
    local lock, line, places, bar = KEYS[k + 1], KEYS[k + 3], KEYS[k + 4], KEYS[k + 5]
    local owner, ttl, place_ms, inbox, note = ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4], ARGV[a + 5]
    local mine = 'kilit1 ' .. owner .. ' '

    local value, first
    if redis.call('EXISTS', lock, line, bar) > 0 then
        value = redis.call('GET', lock)
        if value and string.sub(value, 1, #mine) == mine then
            -- Asked again, since the answer was lost.
            redis.call('PEXPIRE', lock, ttl)
            return string.match(value, '^%S+ %S+ (%d+)')
        end
        if redis.call('EXISTS', bar) == 1 then return 0 end
        first = head(line, places, now_ms)
        if value or (first and first ~= owner) then
            redis.call('ZADD', line, 'NX', now, owner)
            redis.call('HSET', places, owner, string.format('%.0f', now_ms + place_ms) .. ' ' .. inbox .. ' ' .. note)
            for _, key in ipairs({line, places}) do
                if redis.call('PTTL', key) < tonumber(place_ms) then redis.call('PEXPIRE', key, place_ms) end
            end
            -- A lock that is free is as good as taken by who is first.
            return {redis.call('ZRANK', line, owner) + 1, value and redis.call('PTTL', lock) or -1}
        end
    end

    local token = draw()
    redis.call('SET', lock, mine .. token .. ' ' .. now .. ' ' .. ttl .. ' ' .. note, 'NX', 'PX', ttl)

    if first then
        redis.call('ZREM', line, owner)
        redis.call('HDEL', places, owner)
        tell('head', head(line, places, now_ms))
    end
    return token
end

return each(5, 5, take)
