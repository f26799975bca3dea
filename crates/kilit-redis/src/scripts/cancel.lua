-- Ends the hold of an owner, takes it out of the line, and wakes who is first now.
--
-- KEYS: lock, line, places, bar
-- ARGV: owner, for how long to bar it in ms, whether a claim of it may be on its way although it holds
-- Returns 1 when it held the lock
local lock, line, places, bar = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, bar_ms, uncertain = ARGV[1], ARGV[2], ARGV[3]

local value = redis.pcall('GET', lock)
local held = 0
if type(value) == 'string' then
    local id = ' ' .. owner .. ' '
    if string.sub(value, 1, 6 + #id) == 'kilit1' .. id or string.sub(value, 1, 7 + #id) == 'kilit1!' .. id then
        redis.call('DEL', lock)
        held, value = 1, false
    end
end
if held == 0 or uncertain == '1' then redis.call('SET', bar, '', 'PX', bar_ms) end

if redis.call('EXISTS', line) == 1 then
    local left = redis.call('ZREM', line, owner)
    redis.call('HDEL', places, owner)
    if left == 1 or held == 1 then tell(value and 'head' or 'free', head(line, places, (server_time()))) end
end
return held
