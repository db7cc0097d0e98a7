# The proof of bounded work counts page faults, which means nothing beside the audit after each call.
set_tests_properties(unit_nano_defects PROPERTIES LABELS "unit;release")
# Random calls on the scheduler are the fuzz target's, on a fixed stream of bytes.
target_sources(test_sched_random PRIVATE "${PROJECT_SOURCE_DIR}/fuzz/fuzz_sched.c")
# A hundred thousand steps between two processes are for the build without the audit.
set_tests_properties(unit_wire_process PROPERTIES LABELS "unit;release")
