# kvp_gauntlet: published defects, each as a scene over the shadow memory (README.md).
# Included by test/CMakeLists.txt.

file(GLOB gauntlet_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.c")
foreach(part shadow truth watch device)
  list(APPEND gauntlet_sources "${CMAKE_CURRENT_LIST_DIR}/../shadow/${part}.c")
endforeach()
kvp_add_test_program(kvp_gauntlet ${gauntlet_sources})
kvp_add_test(NAME gauntlet COMMAND kvp_gauntlet LABELS model release)
foreach(start ${late_starts})
  kvp_add_test(NAME gauntlet_start_${start} COMMAND kvp_gauntlet --start-at ${start} LABELS model)
endforeach()
kvp_add_test(NAME gauntlet_self COMMAND kvp_gauntlet --self-test LABELS model)
kvp_add_test(NAME gauntlet_table
             COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/table.py"
                     "$<TARGET_FILE:kvp_gauntlet>" "${CMAKE_CURRENT_LIST_DIR}/README.md"
             LABELS model)
