# Runs of kvp_shadow (README.md). Included by test/CMakeLists.txt after the target is made.
#
# Every run is decided by its seed; one of 100,000 operations or more also fails when a situation on
# its engine's list was never met. The soak runs go on for a given time, with seeds that nothing else
# uses.

kvp_add_test(NAME shadow_self COMMAND kvp_shadow --self-test LABELS model)
# Sanitizers make everything ten times slower.
set(ops 200000)
if(KVP_SANITIZE)
  set(ops 100000)
endif()
foreach(engine ordered overlapped sched)
  foreach(seed 1 2)
    kvp_add_test(NAME shadow_${engine}_${seed}
                 COMMAND kvp_shadow --engine ${engine} --seed ${seed} --ops ${ops} LABELS model)
  endforeach()
  kvp_add_test(NAME shadow_soak_${engine}
               COMMAND kvp_shadow --engine ${engine} --seed 1001 --seconds 600 LABELS model soak)
endforeach()
