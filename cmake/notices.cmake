# THIRD-PARTY-NOTICES: the licences of code by others that is compiled into what is built here. Each
# text is read from what is installed, so copyright and version are those of the code that was used.
#
#     cmake -D OUT=FILE [-D XXHASH=xxhash.h] -P cmake/notices.cmake
#
# or, in a build, kvp_write_notices. Without XXHASH the compiler is asked, CC or cc.

# kvp_locate_xxhash(out compiler): the path of the xxhash.h that the compiler knows; else empty.
function(kvp_locate_xxhash out compiler)
  set(${out} "" PARENT_SCOPE)
  execute_process(COMMAND sh -c "echo '#include <xxhash.h>' | \"$0\" -M -x c -" "${compiler}"
                  OUTPUT_VARIABLE rule ERROR_QUIET RESULT_VARIABLE status)
  if(status EQUAL 0 AND rule MATCHES "([^ \n\\]*/xxhash[.]h)")
    set(${out} "${CMAKE_MATCH_1}" PARENT_SCOPE)
  endif()
endfunction()

# kvp_read_xxhash_licence(out path): the comment at the beginning of xxhash.h, as text.
function(kvp_read_xxhash_licence out path)
  file(READ "${path}" text LIMIT 8192)
  string(FIND "${text}" "*/" end)
  string(SUBSTRING "${text}" 0 ${end} text)
  if(NOT text MATCHES "Copyright" OR NOT text MATCHES "BSD 2-Clause"
     OR NOT text MATCHES "Redistributions in binary form")
    message(FATAL_ERROR "${path} does not begin with the licence that is expected there")
  endif()
  string(REGEX REPLACE "^/\\*+\n" "\n" text "${text}")
  string(REGEX REPLACE "\n \\*" "\n" text "${text}")
  string(STRIP "${text}" text)
  set(${out} " ${text}" PARENT_SCOPE)
endfunction()

# kvp_write_notices(OUT file XXHASH path [LIBVALKEY licence] [CFFI licence])
function(kvp_write_notices)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "OUT;XXHASH;LIBVALKEY;CFFI" "")
  if(NOT arg_XXHASH OR NOT EXISTS "${arg_XXHASH}")
    message(FATAL_ERROR "the licence of xxHash is in xxhash.h, which is not found: set "
                        "KVP_XXHASH_INCLUDE_DIR to its folder")
  endif()
  kvp_read_xxhash_licence(xxhash "${arg_XXHASH}")
  string(REPEAT "-" 78 line)
  string(CONCAT text "kvpager is licensed under Apache-2.0; see LICENSE. Code by others is compiled into it, under "
         "the\nlicences below.\n\n${line}\nxxHash, in every library and program: https://xxhash.com\n\n${xxhash}\n")
  if(arg_LIBVALKEY)
    file(READ "${arg_LIBVALKEY}" licence)
    string(STRIP "${licence}" licence)
    string(APPEND text "\n${line}\nlibvalkey, in libkvpager_redis: https://github.com/valkey-io/libvalkey\n\n"
           "${licence}\n")
  endif()
  if(arg_CFFI)
    file(READ "${arg_CFFI}" licence)
    string(STRIP "${licence}" licence)
    string(APPEND text "\n${line}\ncffi, in the extension modules: https://cffi.readthedocs.io\n\n${licence}\n")
  endif()
  file(WRITE "${arg_OUT}" "${text}")
endfunction()

# kvp_install_notices(): what belongs to this build's libraries, with the licence of kvpager.
function(kvp_install_notices)
  set(xxhash "${KVP_XXHASH_INCLUDE_DIR}/xxhash.h")
  if(NOT KVP_XXHASH_INCLUDE_DIR) # a cross compiler that knows it by itself
    kvp_locate_xxhash(xxhash "${CMAKE_C_COMPILER}")
  endif()
  set(libvalkey)
  if(TARGET kvpager_redis AND NOT KVP_VALKEY_FOUND) # the one that scripts/libvalkey.sh built
    set(libvalkey LIBVALKEY "${valkey_folder}/COPYING")
  endif()
  kvp_write_notices(OUT "${PROJECT_BINARY_DIR}/THIRD-PARTY-NOTICES" XXHASH "${xxhash}" ${libvalkey})
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_BINARY_DIR}/THIRD-PARTY-NOTICES"
          DESTINATION "${CMAKE_INSTALL_DOCDIR}")
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  if(NOT XXHASH)
    set(compiler cc)
    if(DEFINED ENV{CC})
      set(compiler "$ENV{CC}")
    endif()
    kvp_locate_xxhash(XXHASH "${compiler}")
  endif()
  kvp_write_notices(OUT "${OUT}" XXHASH "${XXHASH}")
endif()
