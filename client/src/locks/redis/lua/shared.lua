-- What all scripts begin with. A script is one atomic step.
local state, lock, queue, me = KEYS[1], KEYS[2], KEYS[3], ARGV[1]

-- Redis' integers end here. Lua's numbers are doubles, so counters stay texts.
local last_number = '9223372036854775807'

local function above(a, b)
  if #a ~= #b then return #a > #b end
  return a > b
end

-- Number and holder of the lock, which is kept as `number holder`; nothing if it is free.
local function held()
  local value = redis.call('GET', lock)
  if not value then return nil, nil end
  local number, holder = string.match(value, '^(%d+) (.*)$')
  return number or '0', holder or value
end

-- The next number, above the floor; nothing when there is none left.
local function next_number(floor)
  local number = redis.call('HGET', state, 'number') or '0'
  if above(floor, number) then number = floor end
  if not above(last_number, number) then return nil end
  redis.call('HSET', state, 'number', number)
  redis.call('HINCRBY', state, 'number', 1)
  return redis.call('HGET', state, 'number')
end

-- Says that a waiter lives. It expires unless the waiter asks again.
local function sign_of_life(who) return state .. ':waiter:' .. who end

-- A write that changes nothing, because whoever holds a lock does not wait for it. A replica refuses it, and so says
-- nothing about a lock that its primary may have given to somebody else by now.
local function only_on_a_primary() redis.call('DEL', sign_of_life(me)) end

-- What a waiter listens to.
local function turn(who) return state .. ':turn:' .. who end

-- The first waiter that lives; those before it are gone.
local function first_in_queue()
  while true do
    local first = redis.call('LINDEX', queue, 0)
    if not first then return nil end
    if redis.call('EXISTS', sign_of_life(first)) == 1 then return first end
    redis.call('LPOP', queue)
  end
end

local function leave_queue()
  redis.call('LREM', queue, 0, me)
  redis.call('DEL', sign_of_life(me), turn(me))
end

-- Tells the first waiter, and nobody else, that the lock is free.
local function call_next()
  if redis.call('EXISTS', lock) == 1 then return end
  local first = first_in_queue()
  if not first or redis.call('EXISTS', turn(first)) == 1 then return end
  redis.call('RPUSH', turn(first), '1')
  redis.call('PEXPIRE', turn(first), math.max(1, redis.call('PTTL', sign_of_life(first))))
end

