# kvpager.hpp: who owns what, and each way in which a call can fail.

if(KVP_CXX AND KVP_SCHED)
  add_executable(kvp_cpp_owners "${CMAKE_CURRENT_SOURCE_DIR}/cpp/test_owners.cpp")
  kvp_configure_cpp(kvp_cpp_owners)
  kvp_add_test(NAME cpp_owners COMMAND kvp_cpp_owners LABELS unit release)
endif()
