-- Ends the holds of owners, takes them out of the line, and wakes who is first now.
--
-- KEYS for each: lock, line, places, bar
-- ARGV for each: owner, for how long to bar it in ms, whether a claim of it may be on its way although it holds
-- Returns for each 1 when it held the lock
local function cancel(k, a)
    local lock, line, places, bar = KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4]
    local owner, bar_ms, uncertain = ARGV[a + 1], ARGV[a + 2], ARGV[a + 3]

    local value = redis.pcall('GET', lock)
    if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
    local held = 0
    -- Behind `kilit1` or `kilit1!`.
    local at = type(value) == 'string' and string.find(value, ' ' .. owner .. ' ', 1, true)
    if at == 7 or at == 8 then
        redis.call('DEL', lock)
        held, value = 1, false
    end
    if held == 0 or uncertain == '1' then redis.call('SET', bar, '', 'PX', bar_ms) end

    if redis.call('EXISTS', line) == 1 then
        local left = redis.call('ZREM', line, owner)
        redis.call('HDEL', places, owner)
        if left == 1 or held == 1 then tell(value and 'head' or 'free', head(line, places, (server_time()))) end
    end
    return held
end

return each(4, 3, cancel)
