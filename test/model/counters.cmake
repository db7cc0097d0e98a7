# stats_fields.h: the counters in which cache and oracle are compared, made of stats.h, so that a new
# one cannot be forgotten. For all that compiles model/describe.c, also by hand (scripts/ports.py).
set(stats "${PROJECT_SOURCE_DIR}/include/kvpager/stats.h")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${stats}")
file(READ "${stats}" fields)
string(REGEX MATCHALL "\n    uint64_t [a-z_]+" fields "${fields}")
list(FILTER fields EXCLUDE REGEX " (nodes_total|hash_collisions)$")
list(TRANSFORM fields REPLACE "\n    uint64_t (.+)" "    FIELD(kvp_stats, \\1),\n")
string(JOIN "" fields ${fields})
file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/stats_fields.h" CONTENT "${fields}" @ONLY)
