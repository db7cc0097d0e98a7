# The wings of the library, their rooms, and the rooms that a build may leave out. scripts/structure.py
# reads the lists that begin with folders_, headers_ and wing_.
#
# libkvpager is what an engine embeds: the cache, hashes, metadata, snapshots, events, the recorder of
# operation logs, which are always there, and the rooms of the wing core. libkvpager_data, the wing data,
# is there if one of its rooms is; it uses what libkvpager's headers say. libkvpager_store is the third,
# libkvpager_zmq the fourth.

set(folders_core core sched oplog)
set(folders_data memory attention transfer wire)
set(folders_store store spill)
set(folders_zmq publish)
set(headers_core all.h cache.h config.h drop.h events.h hash.h inspect.h kvpager.h lend.h meta.h policy.h
                 quotas.h reasons.h recording.h recover.h seed.h snapshot.h states.h stats.h steps.h swap.h trees.h
                 types.h windows.h)
set(headers_store identity.h spill.h store.h) # cmake/store.cmake installs them
set(headers_zmq publish.h) # cmake/zmq.cmake

# For each switch: its wing, what else it needs, its sources (globs below src), its public headers (below
# include/kvpager), and the beginnings of the paths by which other files include it.

option(KVP_ATTENTION "Attention and rotary embedding on the CPU" ON)
option(KVP_MEMORY "Memory for KV and the copy engine" ON)
option(KVP_SCHED "The scheduler" ON)
option(KVP_TRANSFER "Sequences that move between processes" ON)
option(KVP_WIRE "Messages to worker processes" ON)
option(KVP_OPLOG "Reading, replaying and shrinking operation logs (the core writes them)" ON)

set(KVP_SWITCHES ATTENTION MEMORY SCHED TRANSFER WIRE OPLOG)
set(wing_ATTENTION data)
set(wing_MEMORY data)
set(wing_SCHED core)
set(wing_TRANSFER data)
set(wing_WIRE data)
set(wing_OPLOG core)
set(needs_ATTENTION MEMORY)
set(needs_TRANSFER MEMORY)
set(sources_core "core/*/*.c" base/base.c base/types.c base/why.c "base/platform/*.c")
set(sources_ATTENTION "attention/*.c" "attention/*/*.c" "attention/kernels/*/*.c" base/team.c)
set(sources_MEMORY "memory/*.c" "memory/copy/*.c" "base/pages/*.c" base/team.c)
set(sources_SCHED "sched/*.c")
set(sources_TRANSFER "transfer/*.c" "base/checksum*.c")
set(sources_WIRE "wire/*.c")
set(sources_OPLOG "oplog/*.c")
set(headers_ATTENTION attention.h)
set(headers_MEMORY memory.h)
set(headers_SCHED sched.h)
set(headers_TRANSFER transfer.h)
set(headers_WIRE wire.h)
set(headers_OPLOG oplog.h)
set(includes_ATTENTION attention/)
set(includes_MEMORY memory/ base/pages)
set(includes_SCHED sched/)
set(includes_TRANSFER transfer/ base/checksum)
set(includes_WIRE wire/)
set(includes_OPLOG oplog/)

foreach(switch ${KVP_SWITCHES})
  foreach(other ${needs_${switch}})
    if(KVP_${switch} AND NOT KVP_${other})
      message(FATAL_ERROR "KVP_${switch} needs KVP_${other}: leave out both "
                          "(-DKVP_${switch}=OFF -DKVP_${other}=OFF) or neither")
    endif()
  endforeach()
endforeach()

# KV travels as it lies in memory, and nothing tells the other side in which order its bytes are.
if(KVP_TRANSFER AND CMAKE_C_BYTE_ORDER STREQUAL "BIG_ENDIAN")
  message(FATAL_ERROR "KVP_TRANSFER is for little-endian processors: to another one KV would be sent with its "
                      "bytes in the wrong order. Leave it out (-DKVP_TRANSFER=OFF)")
endif()

# kvp_list_sources(wing out): a wing's sources, none if all its rooms are left out. What both wings use
# of base is the core's here; libkvpager_data has a hidden copy, KVP_SHARED_SOURCES.
set(KVP_SHARED_SOURCES src/base/why.c)
function(kvp_list_sources wing out)
  set(patterns ${sources_${wing}})
  foreach(switch ${KVP_SWITCHES})
    if(KVP_${switch} AND wing_${switch} STREQUAL wing)
      list(APPEND patterns ${sources_${switch}})
    endif()
  endforeach()
  set(sources)
  if(patterns)
    list(TRANSFORM patterns PREPEND "${PROJECT_SOURCE_DIR}/src/")
    file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  endif()
  if(WIN32) # its sockets are others
    list(FILTER sources EXCLUDE REGEX "/src/transfer/(tcp|sockets)[.]c$")
  endif()
  if(wing STREQUAL "core" AND NOT sources MATCHES "/src/core/")
    message(FATAL_ERROR "no sources in ${PROJECT_SOURCE_DIR}/src/core: the checkout is incomplete")
  endif()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# kvp_list_headers(out): the public headers of what is built, of libkvpager and libkvpager_data.
function(kvp_list_headers out)
  set(names ${headers_core})
  set(known ${headers_core} ${headers_store} ${headers_zmq})
  foreach(switch ${KVP_SWITCHES})
    list(APPEND known ${headers_${switch}})
    if(KVP_${switch})
      list(APPEND names ${headers_${switch}})
    endif()
  endforeach()
  file(GLOB there CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/include/kvpager"
       "${PROJECT_SOURCE_DIR}/include/kvpager/*.h")
  foreach(name ${there})
    if(NOT name IN_LIST known)
      message(FATAL_ERROR "include/kvpager/${name} is of no wing: cmake/rooms.cmake lists the headers of each")
    endif()
  endforeach()
  foreach(name ${known})
    if(NOT name IN_LIST there)
      message(FATAL_ERROR "cmake/rooms.cmake names ${name}, which is not in include/kvpager")
    endif()
  endforeach()
  list(TRANSFORM names PREPEND "${PROJECT_SOURCE_DIR}/include/kvpager/")
  set(${out} ${names} PARENT_SCOPE)
endfunction()

# What a build leaves out, as a pattern for the names that files include; empty: nothing.
set(left_out)
foreach(switch ${KVP_SWITCHES})
  if(NOT KVP_${switch})
    foreach(name ${headers_${switch}})
      list(APPEND left_out "kvpager/${name}")
    endforeach()
    list(APPEND left_out ${includes_${switch}})
  endif()
endforeach()
string(REPLACE ";" "|" left_out "${left_out}")
string(REPLACE "." "[.]" KVP_LEFT_OUT "${left_out}")

# kvp_can_build(out file...): do these files include nothing that is left out? Headers beside a file,
# and those of test/common, are read too.
function(kvp_can_build out)
  set(${out} TRUE PARENT_SCOPE)
  if(KVP_LEFT_OUT STREQUAL "")
    return()
  endif()
  set(files ${ARGN})
  set(seen)
  while(files)
    list(POP_FRONT files file)
    list(APPEND seen "${file}")
    get_filename_component(folder "${file}" DIRECTORY)
    file(STRINGS "${file}" lines REGEX "^#include [<\"]")
    foreach(line ${lines})
      string(REGEX REPLACE "^#include [<\"]([^>\"]*).*" "\\1" name "${line}")
      if(name MATCHES "^(${KVP_LEFT_OUT})")
        set(${out} FALSE PARENT_SCOPE)
        return()
      endif()
      foreach(place "${folder}" "${PROJECT_SOURCE_DIR}/test" "${PROJECT_SOURCE_DIR}/test/common")
        if(EXISTS "${place}/${name}" AND NOT "${place}/${name}" IN_LIST seen)
          list(APPEND files "${place}/${name}")
        endif()
      endforeach()
    endforeach()
  endwhile()
endfunction()

# kvp_keep_buildable(list): takes out of a list of files those that cannot be built.
function(kvp_keep_buildable list)
  set(kept)
  foreach(file ${${list}})
    kvp_can_build(can "${file}")
    if(can)
      list(APPEND kept "${file}")
    endif()
  endforeach()
  set(${list} ${kept} PARENT_SCOPE)
endfunction()
