# Stores on Redis and Valkey: against a server of ours that does everything wrong, and against a real
# one, which the test starts on a free port. Without libvalkey one test says so.

if(NOT TARGET kvpager_redis)
  kvp_add_test(NAME redis_without_libvalkey
               COMMAND "${CMAKE_COMMAND}" -E echo "skipped: built without libvalkey: no redis:")
  return()
endif()
file(GLOB redis_tests CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/redis/test_*.c")
foreach(source ${redis_tests})
  get_filename_component(target "${source}" NAME_WE)
  string(REGEX REPLACE "^test_" "" name "${target}")
  kvp_add_test_program(${target} "${source}")
  target_link_libraries(${target} PRIVATE kvpager_redis_static)
  add_dependencies(${target} kvpager_redis)
  set(labels store)
  if(name STREQUAL "redis_eviction") # the servers' own random samples decide: no test for every run
    set(name redis_eviction_soak)
    list(APPEND labels soak)
  endif()
  kvp_add_test(NAME ${name} COMMAND ${target} LABELS ${labels} SKIP 77)
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT
               "LD_LIBRARY_PATH=$<TARGET_FILE_DIR:kvpager_redis>")
endforeach()
# Servers in memory: those of the fuzz target.
kvp_add_test_program(test_redis_scenes_large "${CMAKE_CURRENT_SOURCE_DIR}/redis/test_redis_scenes.c")
target_compile_definitions(test_redis_scenes_large PRIVATE BLOCKS_ARE_LARGE=1)
target_link_libraries(test_redis_scenes_large PRIVATE kvpager_redis_static)
kvp_add_test(NAME redis_scenes_large COMMAND test_redis_scenes_large LABELS store)
foreach(name redis_names redis_rules redis_scenes redis_scenes_large)
  target_sources(test_${name} PRIVATE "${PROJECT_SOURCE_DIR}/fuzz/redis_server.c")
  kvp_use_xxhash(test_${name})
endforeach()
target_sources(test_redis_requests PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/spill/world.c"
               "${CMAKE_CURRENT_SOURCE_DIR}/spill/liar.c"
               "${CMAKE_CURRENT_SOURCE_DIR}/spill/audit.c"
               "${CMAKE_CURRENT_SOURCE_DIR}/shadow/shadow.c")
foreach(call malloc calloc realloc)
  target_link_options(test_redis_every PRIVATE "LINKER:--wrap=${call}")
endforeach()
foreach(name redis_server redis_fake redis_cluster redis_names redis_tls)
  set_tests_properties(${name} PROPERTIES LABELS "store;threads")
  add_dependencies(tests_with_threads test_${name})
endforeach()
