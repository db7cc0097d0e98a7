# libkvpager_llama (integrations/llama): kvpager in front of an unmodified llama.cpp. A static library,
# compiled with the llama.h of the libllama that the program is linked with: neither is here, and
# nothing of llama.cpp is in this repository. `make llama` gets both for its tests.

set(KVP_LLAMA_INCLUDE "" CACHE PATH "Folder with llama.h (and ggml.h, if it is elsewhere: a list)")
set(KVP_LLAMA_default OFF)
if(KVP_LLAMA_INCLUDE)
  set(KVP_LLAMA_default ON)
endif()
option(KVP_LLAMA "Build libkvpager_llama: needs KVP_LLAMA_INCLUDE" ${KVP_LLAMA_default})
set(KVP_LLAMA_LIBRARY "" CACHE FILEPATH "libllama, for kvpager-serve and tests with it")

set(KVP_LLAMA_SOURCE "${PROJECT_SOURCE_DIR}/integrations/llama")
file(GLOB llama_sources CONFIGURE_DEPENDS "${KVP_LLAMA_SOURCE}/src/*.c")

# kvp_add_llama(target include...): the library, with the llama.h of these folders.
function(kvp_add_llama target)
  add_library(${target} STATIC ${llama_sources})
  kvp_configure_target(${target})
  target_include_directories(${target} PUBLIC "${KVP_LLAMA_SOURCE}/include")
  target_include_directories(${target} SYSTEM PRIVATE ${ARGN})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

# kvp_add_llama_disk(target library store include...): its disk, over libkvpager_store. A library of
# its own, so that programs without a disk need no store.
file(GLOB llama_disk_sources CONFIGURE_DEPENDS "${KVP_LLAMA_SOURCE}/src/disk/*.c")
function(kvp_add_llama_disk target library store)
  add_library(${target} STATIC ${llama_disk_sources})
  kvp_configure_target(${target})
  target_include_directories(${target} SYSTEM PRIVATE ${ARGN})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(${target} PUBLIC ${library} ${store})
endfunction()

# kvpager-serve, a program over it. It needs libmicrohttpd and jansson.
file(GLOB serve_sources CONFIGURE_DEPENDS "${KVP_LLAMA_SOURCE}/serve/engine/*.c"
     "${KVP_LLAMA_SOURCE}/serve/http/*.c")
list(APPEND serve_sources "${KVP_LLAMA_SOURCE}/serve/options.c")
set(KVP_CAN_SERVE FALSE)
if(KVP_LLAMA OR KVP_BUILD_TESTS OR KVP_BUILD_FUZZ)
  kvp_find_module(KVP_MICROHTTPD libmicrohttpd>=0.9.72)
  kvp_find_module(KVP_JANSSON jansson)
  find_package(Threads)
endif()
if(KVP_MICROHTTPD_FOUND AND KVP_JANSSON_FOUND AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
  set(KVP_CAN_SERVE TRUE)
endif()

# kvp_serve_record(target): its option --record, if there is libzstd.
if(KVP_CAN_SERVE OR KVP_BUILD_TESTS)
  kvp_find_module(KVP_ZSTD libzstd)
endif()
function(kvp_serve_record target)
  if(TARGET PkgConfig::KVP_ZSTD)
    foreach(part recent packed recorder recording_read siphash)
      target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src/tool/recording/${part}.c")
    endforeach()
    target_compile_definitions(${target} PRIVATE KVP_SERVE_RECORD KVPI_HAS_ZSTD)
    target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src")
    target_link_libraries(${target} PRIVATE PkgConfig::KVP_ZSTD)
  endif()
endfunction()

# kvp_add_serve(target library include...): the server, over a libkvpager_llama with the llama.h of
# these folders.
function(kvp_add_serve target library)
  set(page "${CMAKE_CURRENT_BINARY_DIR}/${target}_page.c")
  add_custom_command(
      OUTPUT "${page}"
      COMMAND "${CMAKE_COMMAND}" -D "OUT=${page}" -D PREFIX=kvpi_serve_
              -D "FILES=${KVP_LLAMA_SOURCE}/serve/page.html"
              -P "${PROJECT_SOURCE_DIR}/cmake/embed.cmake"
      DEPENDS "${KVP_LLAMA_SOURCE}/serve/page.html" "${PROJECT_SOURCE_DIR}/cmake/embed.cmake"
      COMMENT "Embedding the server's page"
      VERBATIM)
  add_executable(${target} "${KVP_LLAMA_SOURCE}/serve/main.c" ${serve_sources} "${page}")
  kvp_configure_target(${target})
  target_include_directories(${target} PRIVATE "${KVP_LLAMA_SOURCE}/src" "${PROJECT_SOURCE_DIR}/src")
  target_include_directories(${target} SYSTEM PRIVATE ${ARGN})
  target_link_libraries(${target} PRIVATE
      ${library} PkgConfig::KVP_MICROHTTPD PkgConfig::KVP_JANSSON Threads::Threads m)
  if(TARGET kvpager_store)
    target_compile_definitions(${target} PRIVATE KVP_SERVE_DISK)
  endif()
  if(TARGET kvpager_zmq)
    target_compile_definitions(${target} PRIVATE KVP_SERVE_PUBLISH)
  endif()
  kvp_serve_record(${target})
endfunction()

if(NOT KVP_LLAMA)
  return()
endif()
if(NOT KVP_SCHED)
  message(FATAL_ERROR "KVP_LLAMA needs KVP_SCHED")
endif()
find_path(KVP_LLAMA_H llama.h PATHS ${KVP_LLAMA_INCLUDE} NO_DEFAULT_PATH NO_CACHE)
if(NOT KVP_LLAMA_H)
  message(FATAL_ERROR "KVP_LLAMA needs llama.h: set KVP_LLAMA_INCLUDE to its folder "
                      "(and ggml's, if that is another one)")
endif()
kvp_add_llama(kvpager_llama ${KVP_LLAMA_INCLUDE})
kvp_count_coverage(kvpager_llama)
kvp_optimise(kvpager_llama)
target_link_libraries(kvpager_llama PUBLIC kvpager_shared)
add_library(kvpager::llama ALIAS kvpager_llama)
if(TARGET lib)
  add_dependencies(lib kvpager_llama)
endif()
if(TARGET kvpager_store)
  kvp_add_llama_disk(kvpager_llama_disk kvpager_llama kvpager_store ${KVP_LLAMA_INCLUDE})
  kvp_count_coverage(kvpager_llama_disk)
  kvp_optimise(kvpager_llama_disk)
  add_library(kvpager::llama_disk ALIAS kvpager_llama_disk)
  if(TARGET lib)
    add_dependencies(lib kvpager_llama_disk)
  endif()
endif()
if(KVP_CAN_SERVE AND KVP_LLAMA_LIBRARY)
  kvp_add_serve(kvpager_serve kvpager_llama ${KVP_LLAMA_INCLUDE})
  kvp_optimise(kvpager_serve)
  set_target_properties(kvpager_serve PROPERTIES OUTPUT_NAME kvpager-serve)
  target_link_libraries(kvpager_serve PRIVATE ${KVP_LLAMA_LIBRARY})
  if(TARGET kvpager_llama_disk)
    target_link_libraries(kvpager_serve PRIVATE kvpager_llama_disk)
  endif()
  if(TARGET kvpager_zmq)
    target_link_libraries(kvpager_serve PRIVATE kvpager_zmq)
  endif()
endif()
if(KVP_INSTALL)
  install(FILES "${KVP_LLAMA_SOURCE}/include/kvpager/llama.h"
          DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/kvpager")
  install(TARGETS kvpager_llama ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  if(TARGET kvpager_llama_disk)
    install(FILES "${KVP_LLAMA_SOURCE}/include/kvpager/llama_disk.h"
            DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/kvpager")
    install(TARGETS kvpager_llama_disk ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  endif()
  if(TARGET kvpager_serve)
    install(TARGETS kvpager_serve RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  endif()
endif()
