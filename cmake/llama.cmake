# libkvpager_llama (integrations/llama): kvpager in front of an unmodified llama.cpp. A static library,
# compiled with the llama.h of the libllama that the program is linked with: neither is here, and
# nothing of llama.cpp is in this repository. `make llama` gets both for its tests.

set(KVP_LLAMA_INCLUDE "" CACHE PATH "Folder with llama.h (and ggml.h, if it is elsewhere: a list)")
set(KVP_LLAMA_default OFF)
if(KVP_LLAMA_INCLUDE)
  set(KVP_LLAMA_default ON)
endif()
option(KVP_LLAMA "Build libkvpager_llama: needs KVP_LLAMA_INCLUDE" ${KVP_LLAMA_default})
set(KVP_LLAMA_LIBRARY "" CACHE FILEPATH "libllama, for tests with it")

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
if(KVP_INSTALL)
  install(FILES "${KVP_LLAMA_SOURCE}/include/kvpager/llama.h"
          DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/kvpager")
  install(TARGETS kvpager_llama ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
