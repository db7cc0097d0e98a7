# kvp_faults: every n-th request of every kind fails (faults.h). Included by test/CMakeLists.txt.
#
# Each run of the sweep is a process; sanitizers make them slow, and ThreadSanitizer cannot fork.

file(GLOB faults_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.c")
list(FILTER faults_sources EXCLUDE REGEX "/tool_")
foreach(source ${model_sources})
  get_filename_component(name "${source}" NAME_WE)
  if(name MATCHES "^(oracle|generate)" OR name STREQUAL "describe")
    list(APPEND faults_sources "${source}")
  endif()
endforeach()
kvp_add_test_program(kvp_faults ${faults_sources})
foreach(function malloc calloc realloc aligned_alloc free mmap munmap pthread_create pthread_join)
  target_link_options(kvp_faults PRIVATE "LINKER:--wrap=${function}")
endforeach()

if(NOT KVP_SANITIZE MATCHES "thread")
  kvp_add_test(NAME faults COMMAND kvp_faults --seeds 1 LABELS model TIMEOUT 900)
  kvp_add_test(NAME faults_self COMMAND kvp_faults --self-test LABELS model)
  kvp_add_test(NAME faults_soak COMMAND kvp_faults --seed 1001 --seeds 400 LABELS model soak)
endif()

# The command, over a system that fails (tool_system.c).
if(TARGET kvpager_tool AND NOT KVP_SANITIZE)
  get_target_property(tool_sources kvpager_tool SOURCES)
  add_executable(kvpager_faulty ${tool_sources} "${CMAKE_CURRENT_LIST_DIR}/tool_system.c")
  kvp_configure_target(kvpager_faulty)
  target_include_directories(kvpager_faulty PRIVATE "${PROJECT_SOURCE_DIR}/src")
  target_compile_definitions(kvpager_faulty PRIVATE KVP_VERSION_STRING="${PROJECT_VERSION}")
  target_link_libraries(kvpager_faulty PRIVATE kvpager_trace kvpager_static m)
  if(TARGET kvpager_store_static)
    target_link_libraries(kvpager_faulty PRIVATE kvpager_store_static)
  endif()
  if(KVP_RECORD)
    target_compile_definitions(kvpager_faulty PRIVATE KVPI_HAS_RECORD)
    target_link_libraries(kvpager_faulty PRIVATE PkgConfig::KVP_EVENT)
    if(TARGET kvpager_zmq)
      target_compile_definitions(kvpager_faulty PRIVATE KVPI_HAS_ZMQ)
      target_link_libraries(kvpager_faulty PRIVATE PkgConfig::KVP_LIBZMQ)
    endif()
  endif()
  foreach(function malloc calloc realloc aligned_alloc mmap fopen fdopen open openat write fsync
          rename renameat clock_gettime gettimeofday)
    target_link_options(kvpager_faulty PRIVATE "LINKER:--wrap=${function}")
  endforeach()
  set(tool_faults "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/tool_faults.py"
      "$<TARGET_FILE:kvpager_faulty>" "$<TARGET_FILE:test_snapshot>")
  kvp_add_test(NAME faults_tool COMMAND ${tool_faults} --most 6 LABELS tools TIMEOUT 900)
  kvp_add_test(NAME faults_tool_soak COMMAND ${tool_faults} LABELS tools soak)
  if(KVP_RECORD AND TARGET kvpager_zmq)
    kvp_add_test(NAME faults_tool_clocks
                 COMMAND "${CMAKE_COMMAND}" -E env "KVPAGER=$<TARGET_FILE:kvpager_faulty>"
                         "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/tool_clocks.py"
                 LABELS tools)
  endif()
endif()
