# What is written to stores and loaded from them. Without libcrypto there are no stores.

if(NOT TARGET kvpager_store_static)
  return()
endif()
set(wraps)
foreach(name malloc calloc aligned_alloc free kvp_spill_create kvp_spill_destroy)
  list(APPEND wraps "LINKER:--wrap=${name}")
endforeach()
foreach(name spill spill_create spill_digests spill_drops spill_flush spill_loads spill_puts spill_random
        spill_rates spill_states)
  kvp_add_test_program(test_${name}
                       "${CMAKE_CURRENT_SOURCE_DIR}/spill/test_${name}.c"
                       "${CMAKE_CURRENT_SOURCE_DIR}/spill/world.c"
                       "${CMAKE_CURRENT_SOURCE_DIR}/spill/liar.c"
                       "${CMAKE_CURRENT_SOURCE_DIR}/spill/audit.c"
                       "${CMAKE_CURRENT_SOURCE_DIR}/spill/heap.c"
                       "${CMAKE_CURRENT_SOURCE_DIR}/shadow/shadow.c")
  target_link_libraries(test_${name} PRIVATE kvpager_store_static)
  target_link_options(test_${name} PRIVATE ${wraps})
endforeach()
target_link_options(test_spill PRIVATE "LINKER:--wrap=kvp_store_poll")
target_link_options(test_spill_puts PRIVATE "LINKER:--wrap=kvp_store_put")
target_link_options(test_spill_digests PRIVATE "LINKER:--wrap=kvp_digest_blocks"
                    "LINKER:--wrap=kvp_hash_units" "LINKER:--wrap=kvp_record_key")
kvp_add_test(NAME spill COMMAND test_spill LABELS store)
kvp_add_test(NAME spill_create COMMAND test_spill_create LABELS store)
kvp_add_test(NAME spill_digests COMMAND test_spill_digests LABELS store)
kvp_add_test(NAME spill_drops COMMAND test_spill_drops LABELS store)
kvp_add_test(NAME spill_flush COMMAND test_spill_flush LABELS store)
kvp_add_test(NAME spill_loads COMMAND test_spill_loads LABELS store)
kvp_add_test(NAME spill_puts COMMAND test_spill_puts LABELS store)
kvp_add_test(NAME spill_random COMMAND test_spill_random LABELS store)
kvp_add_test(NAME spill_rates COMMAND test_spill_rates LABELS store)
kvp_add_test(NAME spill_states COMMAND test_spill_states LABELS store)
kvp_add_test(NAME spill_random_long COMMAND test_spill_random 1001 2000 300 LABELS store long)
kvp_add_test(NAME spill_random_soak COMMAND test_spill_random 100001 40000 1000
             LABELS store soak TIMEOUT 7200)
