-- Takes the lock for its owner, as take.lua, but without token, counter and line.
--
-- KEYS: lock; ARGV: owner, TTL in ms; what take.lua is given beside them is not looked at
if redis.call('SET', KEYS[1], 'kilit1 ' .. ARGV[1] .. ' ', 'NX', 'PX', ARGV[2]) then return {'0'} end
return {{1, redis.call('PTTL', KEYS[1])}}
