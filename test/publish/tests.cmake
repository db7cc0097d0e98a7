# The publisher of events, read by sockets of the test. Without libzmq one test says so.

if(NOT TARGET kvpager_zmq)
  kvp_add_test(NAME publish_without_libzmq
               COMMAND "${CMAKE_COMMAND}" -E echo "skipped: built without libzmq or msgpack: no publisher")
  return()
endif()
file(GLOB publish_tests CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/publish/test_*.c")
foreach(source ${publish_tests})
  get_filename_component(target "${source}" NAME_WE)
  string(REGEX REPLACE "^test_" "" name "${target}")
  kvp_add_test_program(${target} "${source}" "${CMAKE_CURRENT_SOURCE_DIR}/publish/wire.c")
  target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/publish")
  target_link_libraries(${target} PRIVATE kvpager_zmq_static PkgConfig::KVP_LIBZMQ PkgConfig::KVP_MSGPACK)
  kvp_add_test(NAME ${name} COMMAND ${target} LABELS publish)
endforeach()
foreach(call malloc calloc free)
  target_link_options(test_publish_every PRIVATE "LINKER:--wrap=${call}")
endforeach()
