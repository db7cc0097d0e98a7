# libkvpager_zmq: events on the wire of routers (kvpager/publish.h). A library of its own, because it needs
# libzmq, msgpack's C library, of which only the header is used, and libcrypto, for SHA-256. Without one of
# them it is not built, and CMake and the tests say so.

set(KVP_ZMQ_default OFF)
if(PROJECT_IS_TOP_LEVEL)
  set(KVP_ZMQ_default AUTO)
endif()
set(KVP_ZMQ "${KVP_ZMQ_default}" CACHE STRING
    "Build libkvpager_zmq: ON, OFF, or AUTO: if libzmq 4.3, msgpack and libcrypto 3.0 are found")
set_property(CACHE KVP_ZMQ PROPERTY STRINGS AUTO ON OFF)
if(NOT KVP_ZMQ OR WIN32)
  return() # whatever an earlier run found
endif()

kvp_find_module(KVP_LIBZMQ libzmq>=4.3)
kvp_find_module(KVP_MSGPACK msgpack)
if(NOT KVP_MSGPACK_FOUND)
  kvp_find_module(KVP_MSGPACK msgpack-c)
endif()
kvp_find_module(KVP_CRYPTO libcrypto>=3.0)
set(missing)
foreach(pair LIBZMQ:libzmq3-dev MSGPACK:libmsgpack-dev CRYPTO:libssl-dev)
  string(REPLACE ":" ";" pair "${pair}")
  list(GET pair 0 name)
  list(GET pair 1 package)
  if(NOT KVP_${name}_FOUND)
    list(APPEND missing ${package})
  endif()
endforeach()
if(missing)
  list(JOIN missing " " missing)
  if(NOT KVP_ZMQ STREQUAL "AUTO")
    message(FATAL_ERROR "KVP_ZMQ asks for libkvpager_zmq, which needs libzmq, msgpack and libcrypto 3.0 "
                        "(Debian: apt-get install pkg-config ${missing})")
  endif()
  message(STATUS "kvpager: no publisher of events: missing (Debian): ${missing}")
  return()
endif()

file(GLOB publish_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/publish/*.c")
add_library(kvpager_zmq_objects OBJECT ${publish_sources})
kvp_configure_target(kvpager_zmq_objects)
kvp_count_coverage(kvpager_zmq_objects)
kvp_optimise(kvpager_zmq_objects)
target_include_directories(kvpager_zmq_objects PRIVATE "${PROJECT_SOURCE_DIR}/src")
target_include_directories(kvpager_zmq_objects SYSTEM PRIVATE ${KVP_LIBZMQ_INCLUDE_DIRS} ${KVP_MSGPACK_INCLUDE_DIRS}
                           ${KVP_CRYPTO_INCLUDE_DIRS})
set_target_properties(kvpager_zmq_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)

# The static one is for tests and for Python's module.
add_library(kvpager_zmq SHARED $<TARGET_OBJECTS:kvpager_zmq_objects>)
add_library(kvpager_zmq_static STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:kvpager_zmq_objects>)
target_link_libraries(kvpager_zmq PUBLIC kvpager_shared)
target_link_libraries(kvpager_zmq_static PUBLIC kvpager_static)
foreach(library kvpager_zmq kvpager_zmq_static)
  kvp_publish_headers(${library})
  target_link_libraries(${library} PRIVATE PkgConfig::KVP_LIBZMQ PkgConfig::KVP_CRYPTO)
endforeach()
kvp_link_instruments(kvpager_zmq)
set_target_properties(kvpager_zmq PROPERTIES
    EXPORT_NAME zmq VERSION "${PROJECT_VERSION}" SOVERSION "${KVP_SOVERSION}")
add_library(kvpager::zmq ALIAS kvpager_zmq)
if(TARGET lib)
  add_dependencies(lib kvpager_zmq)
endif()


if(KVP_RECORD AND TARGET kvpager_tool) # kvpager record --events
  target_sources(kvpager_tool PRIVATE "${PROJECT_SOURCE_DIR}/src/tool/record/subscribe.c")
  target_compile_definitions(kvpager_tool PRIVATE KVPI_HAS_ZMQ)
  target_link_libraries(kvpager_tool PRIVATE PkgConfig::KVP_LIBZMQ)
endif()

if(KVP_INSTALL)
  list(TRANSFORM headers_zmq PREPEND "${PROJECT_SOURCE_DIR}/include/kvpager/" OUTPUT_VARIABLE zmq_headers)
  install(FILES ${zmq_headers} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/kvpager")
  install(TARGETS kvpager_zmq EXPORT kvpagerZmqTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(EXPORT kvpagerZmqTargets NAMESPACE kvpager:: DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/kvpager")
  configure_file(cmake/kvpager-zmq.pc.in "${PROJECT_BINARY_DIR}/kvpager-zmq.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/kvpager-zmq.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endif()
