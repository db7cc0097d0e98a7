# What the build needs from the system, with a message that says what to install. The libraries alone
# need one header, xxhash.h, and no pkg-config.

# kvp_find_module(prefix module): what pkg-config says of a module, as PkgConfig::prefix. In a cross
# build it is asked only where it has been told about the target; else it would name the host's.
function(kvp_find_module prefix module)
  if(CMAKE_CROSSCOMPILING AND NOT DEFINED ENV{PKG_CONFIG_LIBDIR} AND NOT DEFINED CACHE{PKG_CONFIG_EXECUTABLE})
    set(${prefix}_FOUND FALSE PARENT_SCOPE)
    return()
  endif()
  find_package(PkgConfig QUIET)
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(${prefix} QUIET IMPORTED_TARGET GLOBAL ${module})
  endif()
  set(${prefix}_FOUND ${${prefix}_FOUND} PARENT_SCOPE)
endfunction()

# kvp_require_module(prefix module what package): the same, or it ends here.
function(kvp_require_module prefix module what package)
  kvp_find_module(${prefix} ${module})
  if(NOT ${prefix}_FOUND)
    set(hint "Debian: apt-get install pkg-config ${package}")
    if(CMAKE_CROSSCOMPILING)
      set(hint "the target's: set PKG_CONFIG_LIBDIR in the environment, or PKG_CONFIG_EXECUTABLE")
    endif()
    message(FATAL_ERROR "${module} is missing; ${what} (${hint})")
  endif()
  set(${prefix}_FOUND TRUE PARENT_SCOPE)
endfunction()

# xxHash is header-only here (XXH_INLINE_ALL): the header is found, the library is not linked. A
# cross compiler is asked first; it may know the header without being told where it is.
function(kvp_find_xxhash)
  if(DEFINED CACHE{KVP_XXHASH_INCLUDE_DIR} AND KVP_XXHASH_INCLUDE_DIR)
    return()
  endif()
  set(where)
  if(CMAKE_CROSSCOMPILING)
    set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
    check_c_source_compiles("#include <xxhash.h>\nint kvp_x;" KVP_COMPILER_KNOWS_XXHASH)
    if(KVP_COMPILER_KNOWS_XXHASH)
      return()
    endif()
    set(where NO_CMAKE_SYSTEM_PATH NO_SYSTEM_ENVIRONMENT_PATH)
    if(CMAKE_SYSROOT OR CMAKE_FIND_ROOT_PATH)
      set(where ONLY_CMAKE_FIND_ROOT_PATH)
    endif()
  else()
    find_package(PkgConfig QUIET)
    if(PKG_CONFIG_FOUND)
      pkg_check_modules(KVP_XXHASH QUIET libxxhash)
    endif()
  endif()
  find_path(KVP_XXHASH_INCLUDE_DIR xxhash.h HINTS ${KVP_XXHASH_INCLUDEDIR} ${where}
            DOC "Folder of xxhash.h")
  if(NOT KVP_XXHASH_INCLUDE_DIR)
    message(FATAL_ERROR "xxHash is missing: there is no xxhash.h (Debian: apt-get install "
                        "libxxhash-dev; elsewhere set KVP_XXHASH_INCLUDE_DIR to its folder)")
  endif()
endfunction()
kvp_find_xxhash()
mark_as_advanced(KVP_XXHASH_INCLUDE_DIR)
if(KVP_XXHASH_INCLUDE_DIR)
  file(STRINGS "${KVP_XXHASH_INCLUDE_DIR}/xxhash.h" minor REGEX "# *define +XXH_VERSION_MINOR")
  string(REGEX MATCH "[0-9]+" minor "${minor}")
  if(minor STREQUAL "" OR minor LESS 8)
    message(FATAL_ERROR "${KVP_XXHASH_INCLUDE_DIR}/xxhash.h is older than 0.8.0: its XXH3 gives "
                        "other hashes")
  endif()
endif()

# kvp_use_xxhash(target): the target includes xxhash.h.
function(kvp_use_xxhash target)
  if(KVP_XXHASH_INCLUDE_DIR)
    target_include_directories(${target} SYSTEM PRIVATE "${KVP_XXHASH_INCLUDE_DIR}")
  endif()
endfunction()

if(KVP_BUILD_TOOL OR KVP_BUILD_TESTS OR KVP_BUILD_FUZZ OR KVP_BUILD_BENCH)
  kvp_require_module(KVP_JANSSON jansson "the kvpager command reads JSON with it" libjansson-dev)
endif()

if(KVP_BUILD_TESTS)
  kvp_require_module(KVP_CMOCKA cmocka "the tests need it, or -DKVP_BUILD_TESTS=OFF" libcmocka-dev)
endif()
if(KVP_BUILD_TESTS OR KVP_BUILD_UNITS)
  find_package(Python3 COMPONENTS Interpreter REQUIRED)
endif()
