# Runs of kvp_shadow (README.md). Included by test/CMakeLists.txt after the target is made.
#
# Every run is decided by its seed; one of 100,000 operations or more also fails when a situation on
# its engine's list was never met. The soak runs go on for a given time, with seeds that nothing else
# uses.

kvp_add_test(NAME shadow_self COMMAND kvp_shadow --self-test LABELS model)
# Sanitizers and counters make everything ten times slower.
set(ops 200000)
set(sweep_ops 3000)
if(KVP_SANITIZE OR KVP_COVERAGE)
  set(ops 100000)
  set(sweep_ops 600)
endif()
# A failure that nobody is told of must be found at the first copy.
kvp_add_test(NAME shadow_sweep_self
             COMMAND kvp_shadow --sweep --engine overlapped --plant forgotten-step --ops 600
             LABELS model)
set_tests_properties(shadow_sweep_self PROPERTIES
                     PASS_REGULAR_EXPRESSION "holds what step [0-9]+ left when it failed")
foreach(engine ordered overlapped sched)
  foreach(seed 1 2)
    kvp_add_test(NAME shadow_${engine}_${seed}
                 COMMAND kvp_shadow --engine ${engine} --seed ${seed} --ops ${ops} LABELS model)
  endforeach()
  kvp_add_test(NAME shadow_sweep_${engine}
               COMMAND kvp_shadow --sweep --engine ${engine} --seed 3 --ops ${sweep_ops}
               LABELS model)
  kvp_add_test(NAME shadow_soak_${engine}
               COMMAND kvp_shadow --engine ${engine} --seed 1001 --seconds 600 LABELS model soak)
  kvp_add_test(NAME shadow_sweep_soak_${engine}
               COMMAND kvp_shadow --sweep --engine ${engine} --seed 1001 --ops 600000
               LABELS model soak)
endforeach()
# Configurations of soak runs: what was still there counted as dropped; a request behind windows that
# was not tried although it fitted.
kvp_add_test(NAME shadow_found_8099
             COMMAND kvp_shadow --engine overlapped --seed 1001 --config-index 8099 LABELS model)
kvp_add_test(NAME shadow_found_2447
             COMMAND kvp_shadow --engine sched --seed 1001 --config-index 2447 LABELS model)
foreach(start ${late_starts})
  foreach(engine overlapped sched)
    kvp_add_test(NAME shadow_${engine}_start_${start}
                 COMMAND kvp_shadow --engine ${engine} --seed 4 --ops 10000 --start-at ${start}
                 LABELS model)
  endforeach()
endforeach()
