# Stores: identities and records. Without libcrypto there are none, and one test says so.

if(NOT TARGET kvpager_store_static)
  kvp_add_test(NAME store_without_libcrypto
               COMMAND "${CMAKE_COMMAND}" -E echo "skipped: built without libcrypto: no stores")
  return()
endif()
file(GLOB store_tests CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/store/test_*.c")
foreach(source ${store_tests})
  get_filename_component(target "${source}" NAME_WE)
  string(REGEX REPLACE "^test_" "" name "${target}")
  kvp_add_test_program(${target} "${source}" "${CMAKE_CURRENT_SOURCE_DIR}/store/sim_disk.c"
                       "${CMAKE_CURRENT_SOURCE_DIR}/store/sim_queue.c")
  target_link_libraries(${target} PRIVATE kvpager_store_static)
  kvp_add_test(NAME ${name} COMMAND ${target} LABELS store)
endforeach()
kvp_use_xxhash(test_store_record)
foreach(name store_front store_kill)
  set_tests_properties(${name} PROPERTIES LABELS "store;threads")
  add_dependencies(tests_with_threads test_${name})
endforeach()
kvp_add_test(NAME store_kill_long COMMAND test_store_kill 90 2 LABELS store soak TIMEOUT 1200)
kvp_add_test(NAME store_crash_long COMMAND test_store_crash 2 1 LABELS store soak TIMEOUT 1200)
kvp_add_test(NAME store_random_long COMMAND test_store_random 2 25000000 LABELS store soak TIMEOUT 3600)
