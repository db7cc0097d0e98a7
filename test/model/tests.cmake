# Runs of kvp_model (README.md). Included by test/CMakeLists.txt after the target is made.
#
# Every run is decided by its seed; a run of 200,000 calls or more also fails when a situation on
# its list was never met. The soak runs go on for a given time, with seeds that nothing else uses.

foreach(function malloc calloc realloc aligned_alloc mmap)
  target_link_options(kvp_model PRIVATE "LINKER:--wrap=${function}")
endforeach()

kvp_add_test(NAME model_allocations COMMAND kvp_model --allocations --seed 71 --ops 200000
             LABELS model release)
kvp_add_test(NAME model_combinations
             COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/combinations.py"
                     --drawn "$<TARGET_FILE:kvp_model>"
             LABELS model)
# An open evicts the last block of a unit on its own path, which was cut before: with few nodes,
# and the block that it takes for this unit itself.
kvp_add_test(NAME model_known_unit COMMAND kvp_model --seed 1 --config-index 87 LABELS model)
kvp_add_test(NAME model_known_unit_first COMMAND kvp_model --seed 102 --config-index 540 LABELS model)
kvp_add_test(NAME model_self COMMAND kvp_model --self-test LABELS model)
# Sanitizers and counters make everything ten times slower.
set(ops 600000)
if(KVP_SANITIZE OR KVP_COVERAGE)
  set(ops 60000)
endif()
set(run 0)
foreach(seed 102 13 8) # each of them meets every situation
  math(EXPR run "${run} + 1")
  kvp_add_test(NAME model_random_${run} COMMAND kvp_model --seed ${seed} --ops ${ops}
               LABELS model)
endforeach()

math(EXPR late_ops "${ops} / 12")
foreach(start ${late_starts})
  kvp_add_test(NAME model_start_${start}
               COMMAND kvp_model --seed 5 --ops ${late_ops} --start-at ${start} LABELS model)
endforeach()

# A library that does not audit itself is fast: many more calls.
if(KVP_CHECK EQUAL 0)
  kvp_add_test(NAME model_long COMMAND kvp_model --seed 101 --ops 2500000 LABELS model long)
endif()

foreach(seed 1001 1002)
  kvp_add_test(NAME model_soak_${seed} COMMAND kvp_model --seed ${seed} --seconds 1800
               LABELS model soak)
endforeach()
