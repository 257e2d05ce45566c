-- ARGV: holder, ttl
only_on_a_primary()
local _, holder = held()
if holder ~= me then return 0 end
return redis.call('PEXPIRE', lock, ARGV[2])
