-- Removes one hold and no other, bars its owner, and wakes who is first in line.
--
-- KEYS: lock, line, places, bar
-- ARGV: the value as it was read, for how long to bar the owner in ms (0: not at all)
-- Returns 1 when it was still the same
local lock, line, places, bar = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
if redis.call('GET', lock) ~= ARGV[1] then return 0 end
redis.call('DEL', lock)
if ARGV[2] ~= '0' then redis.call('SET', bar, '', 'PX', ARGV[2]) end
tell('free', head(line, places, (server_time())))
return 1
