-- For wrk: durable fenced writes, or reads, over 10,000 keys with values of 256 bytes.
--
--   wrk -t1 -c64 -d3s --latency -s fenced.lua http://127.0.0.1:3362 -- put|get
--
-- All requests are made before the first is sent, so that Lua costs wrk as little as possible.

local requests = {}
local at = 0

function init(arguments)
    local put = arguments[1] == "put"
    math.randomseed(34)
    for resource = 0, 9999 do
        local path = "/v1/kv/bench/" .. resource
        if put then
            local signs = {}
            for sign = 1, 256 do
                signs[sign] = string.char(math.random(97, 122))
            end
            requests[resource + 1] = wrk.format("PUT", path, { ["Fencing-Token"] = "1000000" }, table.concat(signs))
        else
            requests[resource + 1] = wrk.format("GET", path)
        end
    end
    -- In random order.
    for last = #requests, 2, -1 do
        local other = math.random(last)
        requests[last], requests[other] = requests[other], requests[last]
    end
end

function request()
    at = at % #requests + 1
    return requests[at]
end
