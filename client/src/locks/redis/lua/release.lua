-- Gives back whatever is mine: the lock, a place in the queue. ARGV: holder
local _, holder = held()
leave_queue()
if holder == me then redis.call('DEL', lock) end
call_next()
return 1
