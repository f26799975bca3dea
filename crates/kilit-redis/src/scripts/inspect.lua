-- One lock as it stands.
--
-- KEYS: lock, line, places
-- Returns the type of its key, its value, its PTTL, and owner, score, place for each waiter that looks still
local kind = redis.call('TYPE', KEYS[1]).ok
local value = kind == 'string' and redis.call('GET', KEYS[1])
local waiters = {}
local now_ms = server_time()
local line = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
for i = 1, #line, 2 do
    local place = redis.call('HGET', KEYS[3], line[i])
    if lasts(place, now_ms) then
        waiters[#waiters + 1] = line[i]
        waiters[#waiters + 1] = string.format('%.0f', line[i + 1])
        waiters[#waiters + 1] = place
    end
end
return {kind, value or '', redis.call('PTTL', KEYS[1]), waiters}
