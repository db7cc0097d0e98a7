# What single unit tests need besides. Included by test/CMakeLists.txt.

# kvp_unit(NAME [LABELS label...] [SOURCES file...] [WRAP function...] [SKIP status]): unit_NAME has
# other labels, takes further files in (from the repository's root), has calls of functions sent to
# __wrap_FUNCTION, or may skip. Nothing, where a build leaves the test out.
function(kvp_unit name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SKIP" "LABELS;SOURCES;WRAP")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "kvp_unit(${ARGV}): knows LABELS, SOURCES, WRAP, SKIP")
  endif()
  if(NOT TARGET test_${name})
    if(NOT KVP_LEFT_OUT)
      message(FATAL_ERROR "kvp_unit(${name}): there is no test/unit/test_${name}.c")
    endif()
    return()
  endif()
  if(arg_LABELS)
    set_tests_properties(unit_${name} PROPERTIES LABELS "${arg_LABELS}")
  endif()
  if(arg_SKIP)
    set_tests_properties(unit_${name} PROPERTIES SKIP_RETURN_CODE ${arg_SKIP})
  endif()
  list(TRANSFORM arg_SOURCES PREPEND "${PROJECT_SOURCE_DIR}/")
  target_sources(test_${name} PRIVATE ${arg_SOURCES})
  kvp_can_build(can ${arg_SOURCES})
  if(NOT can)
    set_target_properties(test_${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    set_tests_properties(unit_${name} PROPERTIES DISABLED ON)
  endif()
  foreach(function ${arg_WRAP})
    target_link_options(test_${name} PRIVATE "LINKER:--wrap=${function}")
  endforeach()
endfunction()

# The proof of bounded work counts page faults, which means nothing beside the audit after each call.
kvp_unit(nano_defects LABELS unit release)
# Random calls on the scheduler are the fuzz target's, on a fixed stream of bytes.
kvp_unit(sched_random SOURCES fuzz/fuzz_sched.c)
# A hundred thousand steps between two processes are for the build without the audit.
kvp_unit(wire_process LABELS unit release)
# Parts of the command that are arithmetic.
kvp_unit(trace_print SOURCES src/tool/log/print.c)
kvp_unit(percentiles SOURCES src/tool/percentiles.c)
kvp_unit(mrc_learned LABELS unit release SOURCES
         src/tool/mrc/policies/mrc_learned.c src/tool/mrc/lru.c src/tool/mrc/refs.c
         src/tool/mrc/policies/policies.c src/tool/mrc/policies/adaptive.c)
kvp_unit(record_batch SOURCES src/tool/record/batch.c)
kvp_unit(record_lookups SOURCES
         src/tool/record/lookups.c src/tool/recording/recent.c src/tool/record/evicted.c
         src/tool/mrc/report/bounds.c src/tool/mrc/lru.c
         src/tool/mrc/refs.c src/tool/report/figures.c src/tool/text.c src/tool/progress.c
         src/tool/machine/machine_posix.c)
# The policy twice: the library's, and the model's.
kvp_unit(policy_plain SOURCES test/model/oracle_policy.c)
kvp_unit(figures SOURCES src/tool/report/figures.c src/tool/text.c src/tool/machine/machine_posix.c)
kvp_unit(load_timeline SOURCES src/tool/replay/load_timeline.c)
kvp_unit(step_model SOURCES
         src/tool/models/step_model.c src/tool/models/models.c src/tool/models/models_names.c
         src/tool/models/weights.c src/tool/models/devices.c src/tool/size/size.c
         src/tool/size/size_pool.c
         src/tool/models/config/config.c src/tool/models/config/entries.c
         src/tool/models/config/experts.c src/tool/models/config/family.c
         src/tool/models/config/layers.c src/tool/models/config/models_keys.c
         src/tool/models/config/recurrent.c src/tool/models/config/widths.c)

# Random memory is the fuzz target's, too.
kvp_unit(memory_random SOURCES fuzz/fuzz_memory.c)
# Requests to the system fail when the test says so.
kvp_unit(memory_faults WRAP malloc calloc free mmap pthread_create pthread_join)

# The system's random numbers are what the test says.
kvp_unit(seed WRAP getrandom open read fstat close)

# The example model, without its main.
kvp_unit(tiny_llama SOURCES
         examples/tiny_llama/model.c examples/tiny_llama/plain.c examples/tiny_llama/kv.c
         examples/tiny_llama/engine.c examples/tiny_llama/draft.c examples/tiny_llama/speculate.c
         examples/tiny_llama/states.c examples/tiny_llama/chains.c)

# Allocations of senders, receivers and links fail when the test says so.
kvp_unit(transfer_faults WRAP malloc calloc free)
# The system's calls for shared memory, too; and a hostile peer writes when a message is verified.
kvp_unit(transfer_shm SKIP 77 WRAP calloc memfd_create ftruncate posix_fallocate mmap fcntl sendmsg recvmsg poll
                           kvpi_checksum)
kvp_unit(transfer_shm_ends SKIP 77)
kvp_unit(transfer_tcp WRAP calloc malloc fcntl send recv)

# The way for machines of another byte order is in inline functions, and no machine of ours takes it.
if(TARGET test_record_put)
  kvp_count_coverage(test_record_put)
endif()

# The guard of release builds is another one: a load, a test and a store.
kvp_unit(cache_process LABELS unit release WRAP pthread_atfork)

# Tests that start threads: what ThreadSanitizer is for (make tsan).
add_custom_target(tests_with_threads)
foreach(name cache_beside cache_readers cache_threads memory_copy memory_faults attn_fast attn_large
        attn_q8_0)
  kvp_unit(${name} LABELS unit threads)
  if(TARGET test_${name})
    add_dependencies(tests_with_threads test_${name})
  endif()
endforeach()

kvp_unit(cache_threads LABELS unit threads release)

# The list that it reads.
if(TARGET test_combinations)
  target_compile_definitions(test_combinations PRIVATE
                             KVP_COMBINATIONS="${PROJECT_SOURCE_DIR}/test/combinations.txt")
endif()

# With the name of an implementation (test/mutants/kernels.diff) that the processor does not have.
kvp_unit(attn_fast SKIP 77)
kvp_unit(attn_q8_0 SKIP 77)
kvp_unit(attn_large SKIP 77 LABELS unit threads long)
# Its unpack.c knows no library: the command's is left in the archive.
kvp_unit(unpack_missing SOURCES src/tool/input/unpack.c)
