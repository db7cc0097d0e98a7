#!/bin/sh
# How many jobs a build should run at once: one for each processor that this process may use, and at
# most one for each 2 GiB of memory that is available here, so that linking never swaps.
set -u
cores=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
bytes=$(awk '$1 == "MemAvailable:" { printf "%.0f", $2 * 1024 }' /proc/meminfo 2>/dev/null)
limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || echo max)
awk -v cores="$cores" -v bytes="${bytes:-4294967296}" -v limit="$limit" 'BEGIN {
    if (limit != "max" && limit < bytes)
        bytes = limit
    jobs = int(bytes / (2 * 1024 ^ 3))
    if (jobs > cores)
        jobs = cores
    print jobs < 1 ? 1 : jobs
}'
