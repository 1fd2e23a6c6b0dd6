"""Rate limits in Redis, as scripts in Lua: what runlane's buckets are measured against.

A script runs alone, so a decision is exact. Both use the server's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemas.rate_rules import RateRule
from schemas.stored_rates import Limit

WINDOWS = """
-- KEYS[1]: the bucket, a hash. ARGV: cost, then kind, permits and window in ms of each rule.
-- The same rules as runlane's kinds `window` and `sliding` (32 slots): all are charged or none.
-- Returns 1 and 0, or 0 and how long to wait, in ms.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local cost, wait, longest, changes = tonumber(ARGV[1]), 0, 0, {}
for at = 2, #ARGV, 3 do
  local kind, permits, window = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  longest = math.max(longest, window)
  local used = 0
  if kind == 'window' then
    local stored = redis.call('HMGET', KEYS[1], at .. 's', at .. 'u')
    local start = tonumber(stored[1]) or now
    used = tonumber(stored[2]) or 0
    if now - start >= window then
      start, used = now - (now - start) % window, 0
    end
    if used + cost > permits then wait = math.max(wait, start + window - now) end
    for _, change in ipairs({at .. 's', start, at .. 'u', used + cost}) do changes[#changes + 1] = change end
  else
    local slot = math.ceil(window / 32)
    local first, last = math.floor((now - window + 1) / slot), math.floor(now / slot)
    -- One field holds all slots: it is read and written as a whole, as runlane does.
    local slots, kept = redis.call('HGET', KEYS[1], at .. 'l'), {}
    for number, count in string.gmatch(slots or '', '(%d+):(%d+)') do
      number, count = tonumber(number), tonumber(count)
      if number >= first then
        kept[#kept + 1], used = {number, count}, used + count
      end
    end
    if used + cost > permits then
      wait = math.max(wait, kept[1] and (kept[1][1] + 1) * slot + window - 1 - now or window)
    end
    if kept[#kept] and kept[#kept][1] == last then
      kept[#kept][2] = kept[#kept][2] + cost
    else
      kept[#kept + 1] = {last, cost}
    end
    for number, pair in ipairs(kept) do kept[number] = pair[1] .. ':' .. pair[2] end
    changes[#changes + 1], changes[#changes + 2] = at .. 'l', table.concat(kept, ' ')
  end
end
if wait > 0 then return {0, wait} end
redis.call('HSET', KEYS[1], unpack(changes))
redis.call('PEXPIRE', KEYS[1], 2 * longest)
return {1, 0}
"""

CELL = """
-- KEYS[1]: the bucket. ARGV: cost, permits, window in ms.
-- The generic cell rate algorithm as `redis-cell` has it: one number, the theoretical arrival time, in microseconds.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local cost, permits, window = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]) * 1000
local interval = window / permits
local arrival = math.max(tonumber(redis.call('GET', KEYS[1])) or now, now) + cost * interval
local wait = arrival - window - now
if wait > 0 then return {0, math.ceil(wait / 1000)} end
redis.call('SET', KEYS[1], string.format('%.0f', arrival), 'PX', math.max(1, math.ceil((arrival - now) / 1000)))
return {1, 0}
"""


def windows_arguments(rules: Sequence[RateRule], cost: int = 1) -> list[Any]:
    """Arguments of `WINDOWS`."""
    limits = [rule.limit for rule in rules]
    return [cost, *(part for limit in limits for part in (limit.kind, limit.permits, limit.window_ms))]


def cell_arguments(rules: Sequence[RateRule], cost: int = 1) -> list[Any]:
    """Arguments of `CELL`, which knows one rule: the first."""
    limit: Limit = rules[0].limit
    return [cost, limit.permits, limit.window_ms]
