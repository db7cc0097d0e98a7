# What the build needs from the system, with a message that says what to install.

find_package(PkgConfig)
if(NOT PKG_CONFIG_FOUND)
  message(FATAL_ERROR "pkg-config is missing (Debian: apt-get install pkg-config)")
endif()

# xxHash is header-only here (XXH_INLINE_ALL): the header is found, the library is not linked.
pkg_check_modules(KVP_XXHASH QUIET libxxhash)
if(NOT KVP_XXHASH_FOUND)
  message(FATAL_ERROR "xxHash is missing: pkg-config does not know libxxhash "
                      "(Debian: apt-get install libxxhash-dev)")
endif()
pkg_get_variable(KVP_XXHASH_HINT libxxhash includedir)
find_path(KVP_XXHASH_INCLUDE_DIR xxhash.h HINTS "${KVP_XXHASH_HINT}")
mark_as_advanced(KVP_XXHASH_INCLUDE_DIR)
if(NOT KVP_XXHASH_INCLUDE_DIR)
  message(FATAL_ERROR "pkg-config knows libxxhash, but ${KVP_XXHASH_HINT}/xxhash.h is missing "
                      "(Debian: apt-get install libxxhash-dev)")
endif()

if(KVP_BUILD_TOOL OR KVP_BUILD_TESTS OR KVP_BUILD_FUZZ OR KVP_BUILD_BENCH)
  pkg_check_modules(KVP_JANSSON QUIET IMPORTED_TARGET jansson)
  if(NOT KVP_JANSSON_FOUND)
    message(FATAL_ERROR "jansson is missing; the kvpager command reads JSON with it "
                        "(Debian: apt-get install libjansson-dev)")
  endif()
endif()

if(KVP_BUILD_TESTS)
  pkg_check_modules(KVP_CMOCKA QUIET IMPORTED_TARGET cmocka)
  if(NOT KVP_CMOCKA_FOUND)
    message(FATAL_ERROR "cmocka is missing; the tests need it (Debian: apt-get install "
                        "libcmocka-dev), or configure with -DKVP_BUILD_TESTS=OFF")
  endif()
  find_package(Python3 COMPONENTS Interpreter REQUIRED)
endif()
