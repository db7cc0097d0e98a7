# Runs of kvp_sched_model (runner.c). Included by test/CMakeLists.txt after the target is made.
# Every run is decided by its seed; one of 200,000 calls or more also fails when a situation was
# never met. The soak run goes on for a given time, with a seed that nothing else uses.

set(calls 200000)
if(KVP_SANITIZE OR KVP_COVERAGE)
  set(calls 40000)
endif()
foreach(seed 1 2)
  kvp_add_test(NAME sched_model_random_${seed}
               COMMAND kvp_sched_model --seed ${seed} --calls ${calls} LABELS model)
endforeach()

math(EXPR late_calls "${calls} / 8")
foreach(start ${late_starts})
  kvp_add_test(NAME sched_model_start_${start}
               COMMAND kvp_sched_model --seed 3 --calls ${late_calls} --start-at ${start}
               LABELS model)
endforeach()

# One that is followed, preempted and let in again is another leader, whatever place it has then.
kvp_add_test(NAME sched_model_led_again COMMAND kvp_sched_model --seed 101 --config 1542
             LABELS model)

# A library that does not audit itself is fast: many more calls.
if(KVP_CHECK EQUAL 0)
  kvp_add_test(NAME sched_model_long COMMAND kvp_sched_model --seed 101 --calls 1500000
               LABELS model long)
endif()

kvp_add_test(NAME sched_model_soak COMMAND kvp_sched_model --seed 1001 --seconds 600
             LABELS model soak)
