"""Values in API objects and flags: quantities, durations, times, integers, cron schedules, IP addresses."""
