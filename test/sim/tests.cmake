# Runs of kvp_sim (sim.h). Included by test/CMakeLists.txt. Every run is decided by its seed.

if(NOT TARGET kvpager_store_static)
  return()
endif()
file(GLOB sim_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.c")
kvp_add_test_program(kvp_sim ${sim_sources} "${CMAKE_CURRENT_LIST_DIR}/../shadow/shadow.c"
                     "${CMAKE_CURRENT_LIST_DIR}/../store/sim_disk.c"
                     "${CMAKE_CURRENT_LIST_DIR}/../store/sim_queue.c")
target_link_libraries(kvp_sim PRIVATE kvpager_store_static)
set(calls) # as many as it takes until everything has happened
if(KVP_SANITIZE OR KVP_COVERAGE)
  set(calls --calls 15000)
endif()
kvp_add_test(NAME sim COMMAND kvp_sim ${calls} LABELS model)
kvp_add_test(NAME sim_self COMMAND kvp_sim --self-test LABELS model)
foreach(start ${late_starts})
  kvp_add_test(NAME sim_start_${start}
               COMMAND kvp_sim --seed 7 --calls 9000 --start-at ${start} LABELS model)
endforeach()
kvp_add_test(NAME sim_soak COMMAND kvp_sim --seed 1001 --seconds 600 LABELS model soak)
