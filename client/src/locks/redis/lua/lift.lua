-- Raises the counter above the floor, and my number with it, if I still hold the lock in the same incarnation.
-- ARGV: holder, floor, incarnation
only_on_a_primary()
local _, holder = held()
if holder ~= me or redis.call('HGET', state, 'incarnation') ~= ARGV[3] then return {'lost'} end
local number = next_number(ARGV[2])
if not number then return {'exhausted'} end
redis.call('SET', lock, number .. ' ' .. me, 'KEEPTTL')
return {'granted', number, ARGV[3]}
