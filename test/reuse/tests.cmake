# kvp_reuse: what a cache with recurrent state reuses, beside what could be (docs/HYBRID.md).
# Included by test/CMakeLists.txt. With checks on, each call audits the whole cache: only its own test.

file(GLOB reuse_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.c")
kvp_add_test_program(kvp_reuse ${reuse_sources})
target_link_libraries(kvp_reuse PRIVATE m)
kvp_add_test(NAME reuse_self COMMAND kvp_reuse --self-test LABELS model)
if(KVP_CHECK EQUAL 0)
  kvp_add_test(NAME reuse COMMAND kvp_reuse LABELS release)
endif()
