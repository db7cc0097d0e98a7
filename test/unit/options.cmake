# The proof of bounded work counts page faults, which means nothing beside the audit after each call.
set_tests_properties(unit_nano_defects PROPERTIES LABELS "unit;release")
# Random calls on the scheduler are the fuzz target's, on a fixed stream of bytes.
target_sources(test_sched_random PRIVATE "${PROJECT_SOURCE_DIR}/fuzz/fuzz_sched.c")
# A hundred thousand steps between two processes are for the build without the audit.
set_tests_properties(unit_wire_process PROPERTIES LABELS "unit;release")
# Parts of the command that are arithmetic.
set(tool "${PROJECT_SOURCE_DIR}/src/tool")
target_sources(test_percentiles PRIVATE "${tool}/percentiles.c")
target_sources(test_load_timeline PRIVATE "${tool}/load_timeline.c")
target_sources(test_step_model PRIVATE
    "${tool}/step_model.c" "${tool}/models.c" "${tool}/devices.c" "${tool}/size.c")

# Random memory is the fuzz target's, too.
target_sources(test_memory_random PRIVATE "${PROJECT_SOURCE_DIR}/fuzz/fuzz_memory.c")
# Requests to the system fail when the test says so.
target_link_options(test_memory_faults PRIVATE
    LINKER:--wrap=malloc,--wrap=calloc,--wrap=free,--wrap=mmap
    LINKER:--wrap=pthread_create,--wrap=pthread_join)

# The system's random numbers are what the test says.
target_link_options(test_seed PRIVATE
    LINKER:--wrap=getrandom,--wrap=open,--wrap=read,--wrap=fstat,--wrap=close)

# The example model, without its main.
target_sources(test_tiny_llama PRIVATE
    "${PROJECT_SOURCE_DIR}/examples/tiny_llama/model.c"
    "${PROJECT_SOURCE_DIR}/examples/tiny_llama/plain.c"
    "${PROJECT_SOURCE_DIR}/examples/tiny_llama/kv.c"
    "${PROJECT_SOURCE_DIR}/examples/tiny_llama/engine.c"
    "${PROJECT_SOURCE_DIR}/examples/tiny_llama/draft.c"
    "${PROJECT_SOURCE_DIR}/examples/tiny_llama/speculate.c")

# Allocations of senders, receivers and links fail when the test says so.
target_link_options(test_transfer_faults PRIVATE LINKER:--wrap=malloc,--wrap=calloc,--wrap=free)

# The way for machines of another byte order is in inline functions, and no machine of ours takes it.
kvp_count_coverage(test_record_put)

# The guard of release builds is another one: a load, a test and a store.
target_link_options(test_cache_process PRIVATE LINKER:--wrap=pthread_atfork)
set_tests_properties(unit_cache_process PROPERTIES LABELS "unit;release")

# Tests that start threads: what ThreadSanitizer is for (make tsan).
add_custom_target(tests_with_threads)
foreach(name cache_beside cache_readers cache_threads memory_copy memory_faults attn_fast attn_large)
  set_tests_properties(unit_${name} PROPERTIES LABELS "unit;threads")
  add_dependencies(tests_with_threads test_${name})
endforeach()

set_tests_properties(unit_cache_threads PROPERTIES LABELS "unit;threads;release")

# With the name of an implementation (test/mutants/kernels.diff) that the processor does not have.
set_tests_properties(unit_attn_fast unit_attn_large PROPERTIES SKIP_RETURN_CODE 77)
