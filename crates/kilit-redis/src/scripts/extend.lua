-- Sets leases to their full TTL where they still belong to their owners.
--
-- KEYS: locks
-- ARGV: owner and TTL in ms, for each
-- Returns for each 1: kept, 0: gone, 2: an operator asks for it back
local extended = {}
for i, lock in ipairs(KEYS) do
    local id = ' ' .. ARGV[2 * i - 1] .. ' '
    local value = redis.pcall('GET', lock)
    extended[i] = 0
    if type(value) == 'string' and string.find(value, id, 1, true) then
        if string.sub(value, 1, 6 + #id) == 'kilit1' .. id then
            extended[i] = redis.call('PEXPIRE', lock, ARGV[2 * i])
        elseif string.sub(value, 1, 7 + #id) == 'kilit1!' .. id then
            extended[i] = 2
        end
    elseif type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
        return value
    end
end
return extended
