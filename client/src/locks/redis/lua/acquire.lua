-- Takes the lock if it is free and nobody was here first; else keeps a place in the queue.
-- ARGV: holder, ttl, floor, the incarnation if there is none yet, how long a place lasts (0: take none), most places
local ttl, floor, fresh, place, most = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local number, holder = held()
local incarnation = redis.call('HGET', state, 'incarnation')

if holder == me and incarnation and above(number, floor) then
  -- Granted before; the answer was lost.
  redis.call('PEXPIRE', lock, ttl)
  leave_queue()
  return {'granted', number, incarnation}
end

if place ~= '0' and redis.call('EXISTS', queue) == 1 then
  -- Before the dead are counted: being late costs no place.
  redis.call('SET', sign_of_life(me), '', 'PX', place)
end
local first = first_in_queue()
if (holder and holder ~= me) or (first and first ~= me) then
  if place == '0' then
    leave_queue()
    return {'busy'}
  end
  if not redis.call('LPOS', queue, me) then
    if redis.call('LLEN', queue) >= tonumber(most) then
      leave_queue()
      return {'full'}
    end
    redis.call('RPUSH', queue, me)
    first = first or me
  end
  redis.call('SET', sign_of_life(me), '', 'PX', place)
  if redis.call('PTTL', queue) < tonumber(place) then redis.call('PEXPIRE', queue, place) end
  if not holder then call_next() end
  -- Only the first has to know when the lock ends by itself.
  return {'queued', first == me and string.format('%d', redis.call('PTTL', lock)) or ''}
end

number = next_number(floor)
leave_queue()
if not number then return {'exhausted'} end
redis.call('HSETNX', state, 'incarnation', fresh)
redis.call('SET', lock, number .. ' ' .. me, 'PX', ttl)
return {'granted', number, redis.call('HGET', state, 'incarnation')}
