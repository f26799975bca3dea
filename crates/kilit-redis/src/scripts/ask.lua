-- Marks a hold, so that its owner gives it up at its next renewal; nobody can take the lock meanwhile.
--
-- KEYS: lock
-- ARGV: the value as it was read, and as it is from now on
-- Returns 1 when it was still the same
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
return 1
