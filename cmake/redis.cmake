# libkvpager_redis: stores on Redis and Valkey servers. A library of its own, which libkvpager_store
# loads when a URL asks for it, because it needs libvalkey: the system's, or the one that
# scripts/libvalkey.sh built. Without libvalkey it is not built, and CMake and the tests say so.

set(KVP_REDIS_default OFF)
if(PROJECT_IS_TOP_LEVEL)
  set(KVP_REDIS_default AUTO)
endif()
set(KVP_REDIS "${KVP_REDIS_default}" CACHE STRING
    "Build libkvpager_redis: ON, OFF, or AUTO: if libvalkey is found")
set_property(CACHE KVP_REDIS PROPERTY STRINGS AUTO ON OFF)
if(NOT KVP_REDIS)
  return() # whatever an earlier run found
endif()
if(NOT TARGET kvpager_store)
  if(NOT KVP_REDIS STREQUAL "AUTO")
    message(FATAL_ERROR "KVP_REDIS needs KVP_STORE")
  endif()
  return()
endif()

set(valkey_folder "${PROJECT_SOURCE_DIR}/build/libvalkey")
if(DEFINED ENV{KVP_VALKEY_FOLDER}) # of a copy of the sources: test/mutants
  set(valkey_folder "$ENV{KVP_VALKEY_FOLDER}")
endif()
kvp_find_module(KVP_VALKEY libvalkey>=0.5)
kvp_find_module(KVP_SSL libssl>=3.0)
add_library(kvpager_valkey INTERFACE)
if(NOT KVP_SSL_FOUND)
  if(NOT KVP_REDIS STREQUAL "AUTO")
    message(FATAL_ERROR "libssl 3.0 is missing (Debian: libssl-dev); KVP_REDIS asks for it")
  endif()
  message(STATUS "kvpager: no stores on Redis and Valkey: libssl 3.0 is missing (Debian: libssl-dev)")
  return()
endif()
target_link_libraries(kvpager_valkey INTERFACE PkgConfig::KVP_SSL)
if(KVP_VALKEY_FOUND)
  target_link_libraries(kvpager_valkey INTERFACE PkgConfig::KVP_VALKEY)
elseif(EXISTS "${valkey_folder}/libvalkey.a" AND NOT CMAKE_CROSSCOMPILING)
  target_include_directories(kvpager_valkey SYSTEM INTERFACE "${valkey_folder}/include")
  target_link_libraries(kvpager_valkey INTERFACE "${valkey_folder}/libvalkey.a" m)
elseif(KVP_REDIS STREQUAL "AUTO")
  message(STATUS "kvpager: no stores on Redis and Valkey: libvalkey is missing "
                 "(scripts/libvalkey.sh builds it)")
  return()
else()
  message(FATAL_ERROR "libvalkey is missing; KVP_REDIS asks for it (scripts/libvalkey.sh builds it)")
endif()

# What it shares with libkvpager_store is compiled into both: the functions are not exported.
file(GLOB redis_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/store/redis/*.c"
     "${PROJECT_SOURCE_DIR}/src/store/redis/*/*.c")
add_library(kvpager_redis_objects OBJECT ${redis_sources})
kvp_configure_target(kvpager_redis_objects)
kvp_count_coverage(kvpager_redis_objects)
kvp_optimise(kvpager_redis_objects)
target_include_directories(kvpager_redis_objects PRIVATE "${PROJECT_SOURCE_DIR}/src")
target_link_libraries(kvpager_redis_objects PRIVATE kvpager_valkey Threads::Threads)
set_target_properties(kvpager_redis_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)

# The static one is for tests.
add_library(kvpager_redis SHARED $<TARGET_OBJECTS:kvpager_redis_objects>
            "${PROJECT_SOURCE_DIR}/src/store/url.c" "${PROJECT_SOURCE_DIR}/src/store/wake.c")
kvp_configure_target(kvpager_redis)
target_include_directories(kvpager_redis PRIVATE "${PROJECT_SOURCE_DIR}/src")
target_link_libraries(kvpager_redis PRIVATE kvpager_valkey Threads::Threads)
# It stays where it is: a thread that looks up a name may outlive the store.
target_link_options(kvpager_redis PRIVATE -Wl,--exclude-libs,ALL -Wl,-z,nodelete)
set_target_properties(kvpager_redis PROPERTIES
    VERSION "${PROJECT_VERSION}" SOVERSION "${KVP_SOVERSION}")
add_library(kvpager_redis_static STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:kvpager_redis_objects>)
target_link_libraries(kvpager_redis_static PUBLIC kvpager_store_static kvpager_valkey)
if(TARGET lib)
  add_dependencies(lib kvpager_redis)
endif()
if(TARGET kvpager_tool)
  add_dependencies(kvpager_tool kvpager_redis)
endif()

if(KVP_INSTALL)
  install(TARGETS kvpager_redis LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
