# libkvpager_store: KV in stores (kvpager/store.h, kvpager/identity.h). A library of its own, so that
# libkvpager needs nothing: this one needs libcrypto, for SHA-256. Without it there are no stores, and
# CMake and the tests say so.

# kvp_add_store_command(sources...): to the kvpager command, which has the subcommand with stores,
# and without them says so.
function(kvp_add_store_command)
  if(TARGET kvpager_tool)
    list(TRANSFORM ARGN PREPEND "${PROJECT_SOURCE_DIR}/src/tool/")
    target_sources(kvpager_tool PRIVATE ${ARGN})
  endif()
endfunction()

set(KVP_STORE_default OFF)
if(PROJECT_IS_TOP_LEVEL)
  set(KVP_STORE_default AUTO)
endif()
set(KVP_STORE "${KVP_STORE_default}" CACHE STRING
    "Build libkvpager_store: ON, OFF, or AUTO: if libcrypto 3.0 is found")
set_property(CACHE KVP_STORE PROPERTY STRINGS AUTO ON OFF)
if(NOT KVP_STORE STREQUAL "AUTO" AND KVP_STORE AND NOT KVP_MEMORY)
  message(FATAL_ERROR "KVP_STORE needs KVP_MEMORY")
endif()
if(NOT KVP_STORE OR NOT KVP_MEMORY)
  kvp_add_store_command(store/absent.c store/loading.c)
  return() # whatever an earlier run found
endif()
if(CMAKE_C_BYTE_ORDER STREQUAL "BIG_ENDIAN") # records have KV as it lies in memory
  if(NOT KVP_STORE STREQUAL "AUTO")
    message(FATAL_ERROR "KVP_STORE is for little-endian processors: leave it out (-DKVP_STORE=OFF)")
  endif()
  message(STATUS "kvpager: no stores: they are for little-endian processors")
  kvp_add_store_command(store/absent.c store/loading.c)
  return()
endif()
if(WIN32) # files that are locked, read and written as Linux and POSIX have it
  if(NOT KVP_STORE STREQUAL "AUTO")
    message(FATAL_ERROR "KVP_STORE needs POSIX: for Windows leave it out (-DKVP_STORE=OFF)")
  endif()
  message(STATUS "kvpager: no stores: they need POSIX")
  kvp_add_store_command(store/absent.c store/loading.c)
  return()
endif()
if(KVP_STORE STREQUAL "AUTO")
  kvp_find_module(KVP_CRYPTO libcrypto>=3.0)
else()
  kvp_require_module(KVP_CRYPTO libcrypto>=3.0 "KVP_STORE asks for it" libssl-dev)
endif()
if(NOT KVP_CRYPTO_FOUND)
  message(STATUS "kvpager: no stores: libcrypto 3.0 is missing (Debian: libssl-dev)")
  kvp_add_store_command(store/absent.c store/loading.c)
  return()
endif()

# io_uring needs liburing; without it records are read and written by threads, and stores say so.
set(KVP_STORE_URING AUTO CACHE STRING
    "Stores use io_uring: ON, OFF, or AUTO: if liburing 2.2 is found")
set_property(CACHE KVP_STORE_URING PROPERTY STRINGS AUTO ON OFF)
set(KVP_URING_FOUND FALSE)
if(KVP_STORE_URING STREQUAL "AUTO")
  kvp_find_module(KVP_URING liburing>=2.2)
elseif(KVP_STORE_URING)
  kvp_require_module(KVP_URING liburing>=2.2 "KVP_STORE_URING asks for it" liburing-dev)
endif()
if(NOT KVP_URING_FOUND)
  message(STATUS "kvpager: stores use threads: liburing 2.2 is missing or not wanted "
                 "(Debian: liburing-dev)")
endif()

find_package(Threads REQUIRED)
file(GLOB store_sources CONFIGURE_DEPENDS
     "${PROJECT_SOURCE_DIR}/src/store/*.c" "${PROJECT_SOURCE_DIR}/src/store/*/*.c"
     "${PROJECT_SOURCE_DIR}/src/store/*/*/*.c" "${PROJECT_SOURCE_DIR}/src/spill/*.c"
     "${PROJECT_SOURCE_DIR}/src/spill/*/*.c")
list(FILTER store_sources EXCLUDE REGEX "/store/redis/") # cmake/redis.cmake
add_library(kvpager_store_objects OBJECT ${store_sources})
kvp_configure_target(kvpager_store_objects)
kvp_count_coverage(kvpager_store_objects)
kvp_optimise(kvpager_store_objects)
target_include_directories(kvpager_store_objects PRIVATE "${PROJECT_SOURCE_DIR}/src")
if(KVP_XXHASH_INCLUDE_DIR)
  target_include_directories(kvpager_store_objects SYSTEM PRIVATE "${KVP_XXHASH_INCLUDE_DIR}")
endif()
target_link_libraries(kvpager_store_objects PRIVATE PkgConfig::KVP_CRYPTO Threads::Threads)
if(KVP_URING_FOUND)
  target_link_libraries(kvpager_store_objects PRIVATE PkgConfig::KVP_URING)
  target_compile_definitions(kvpager_store_objects PRIVATE KVP_STORE_URING)
endif()
target_compile_definitions(kvpager_store_objects PRIVATE
    "KVP_REDIS_LIBRARY=\"libkvpager_redis.so.${KVP_SOVERSION}\"")
set_target_properties(kvpager_store_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)

# The static one is for tests, which see the internal headers.
add_library(kvpager_store SHARED $<TARGET_OBJECTS:kvpager_store_objects>)
add_library(kvpager_store_static STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:kvpager_store_objects>)
target_link_libraries(kvpager_store PUBLIC kvpager_data)
target_link_libraries(kvpager_store_static PUBLIC kvpager_static)
foreach(library kvpager_store kvpager_store_static)
  kvp_publish_headers(${library})
  target_link_libraries(${library} PRIVATE PkgConfig::KVP_CRYPTO Threads::Threads ${CMAKE_DL_LIBS})
  if(KVP_URING_FOUND)
    target_link_libraries(${library} PRIVATE PkgConfig::KVP_URING)
  endif()
endforeach()
kvp_link_instruments(kvpager_store)
set_target_properties(kvpager_store PROPERTIES
    EXPORT_NAME store VERSION "${PROJECT_VERSION}" SOVERSION "${KVP_SOVERSION}")
add_library(kvpager::store ALIAS kvpager_store)
kvp_add_store_command(cmd_store.c store/attach.c store/bench.c store/known.c store/loading.c
                      store/modelled.c store/replay_report.c store/store_report.c)
if(TARGET kvpager_tool)
  target_link_libraries(kvpager_tool PRIVATE kvpager_store_static)
endif()
if(TARGET lib)
  add_dependencies(lib kvpager_store)
endif()

if(KVP_INSTALL)
  list(TRANSFORM headers_store PREPEND "${PROJECT_SOURCE_DIR}/include/kvpager/"
       OUTPUT_VARIABLE store_headers)
  install(FILES ${store_headers} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/kvpager")
  install(TARGETS kvpager_store EXPORT kvpagerStoreTargets
          LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(EXPORT kvpagerStoreTargets NAMESPACE kvpager::
          DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/kvpager")
  configure_file(cmake/kvpager-store.pc.in "${PROJECT_BINARY_DIR}/kvpager-store.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/kvpager-store.pc"
          DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endif()
