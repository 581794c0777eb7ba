"""What Ray is told wherever the product starts it; the user's own variables come first."""

LOCAL_OBJECT_STORE_BYTES = 2 * 1024**3
"""Of a Ray that is started on a machine without GPUs."""
RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's own 15 starves the workers, and so their deadlines, as soon as anything else is busy on the machine.
    "RAY_worker_niceness": "0",
    # What nobody reads would only grow: Ray's history of calls, and what it keeps of workers that are gone.
    "RAY_task_events_report_interval_ms": "0",
    "RAY_maximum_gcs_destroyed_actor_cached_count": "100",
    "RAY_maximum_gcs_dead_worker_cached_count": "100",
    "RAY_LOG_MONITOR_MAX_OPEN_FILES": "20",
}
