-- The frame of a script that does the same for many locks, in front of it: one refusal is one answer, and no other's.

-- Calls `step` for each lock with where its keys and arguments begin, and returns the answers in order.
local function each(keys, args, step)
    local answers = {}
    for i = 0, #KEYS / keys - 1 do
        local done, answer = pcall(step, keys * i, args * i)
        -- What the server says of an error is a table since version 7, and text before.
        if not done then answer = {err = type(answer) == 'table' and answer.err or tostring(answer)} end
        answers[i + 1] = answer
    end
    return answers
end

