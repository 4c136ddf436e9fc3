"""CronJob controller: creates Jobs on a schedule, and deletes the oldest finished ones."""
