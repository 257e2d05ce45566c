-- Do I still hold the lock? ARGV: holder
only_on_a_primary()
local _, holder = held()
return holder == me and 1 or 0
