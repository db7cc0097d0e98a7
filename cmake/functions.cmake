# The few functions that the CMakeLists.txt files share.

include(CheckCCompilerFlag)
include(CheckCSourceCompiles)

# kvp_link_instruments(target): links what KVP_SANITIZE names, and the counters of KVP_COVERAGE.
function(kvp_link_instruments target)
  if(KVP_SANITIZE)
    target_link_options(${target} PRIVATE "-fsanitize=${KVP_SANITIZE}")
  endif()
  if(KVP_COVERAGE)
    target_link_options(${target} PRIVATE --coverage)
  endif()
endfunction()

# kvp_count_coverage(target): with KVP_COVERAGE, counts lines and branches of a part that ships. At
# -O0 every condition of the source is a branch of its own; without inlining, of the program too.
function(kvp_count_coverage target)
  if(KVP_COVERAGE)
    target_compile_options(${target} PRIVATE -O0 --coverage -fprofile-update=atomic
        -Wno-sign-conversion) # of intrinsics, which are macros at -O0
  endif()
endfunction()

# kvp_configure_target(target): the C dialect, warnings, checks and sanitizers of everything that
# is compiled here; the public headers are on the include path.
function(kvp_configure_target target)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/include")
  target_compile_definitions(${target} PRIVATE "KVP_CHECK=${KVP_CHECK}")
  if(PROJECT_IS_TOP_LEVEL)
    target_compile_options(${target} PRIVATE
        -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Wvla)
  else()
    target_compile_options(${target} PRIVATE -w) # also those that the whole build asks for
  endif()
  if(WIN32) # formats as C has them, where gcc expects those of Windows; math.h has double in macros for float
    target_compile_definitions(${target} PRIVATE __USE_MINGW_ANSI_STDIO=1)
    target_compile_options(${target} PRIVATE -Wno-format -Wno-float-conversion)
  endif()
  if(KVP_CHECK GREATER 0)
    target_compile_options(${target} PRIVATE -UNDEBUG) # whatever the build type says
  endif()
  if(KVP_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(KVP_SANITIZE)
    target_compile_options(${target} PRIVATE
        "-fsanitize=${KVP_SANITIZE}" -fno-sanitize-recover=all -fno-omit-frame-pointer)
  endif()
  if(KVP_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  kvp_link_instruments(${target})
  set_target_properties(${target} PROPERTIES
      C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF C_VISIBILITY_PRESET hidden)
endfunction()

# kvp_configure_cpp(target): the same for what uses kvpager.hpp. It needs no exceptions.
function(kvp_configure_cpp target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wshadow -fno-exceptions)
  if(KVP_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(KVP_SANITIZE)
    target_compile_options(${target} PRIVATE
        "-fsanitize=${KVP_SANITIZE}" -fno-sanitize-recover=all -fno-omit-frame-pointer)
  endif()
  kvp_link_instruments(${target})
  set_target_properties(${target} PROPERTIES
      CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
  target_link_libraries(${target} PRIVATE kvpager::static m)
endfunction()

# kvp_optimise(target): a build without a type is optimised all the same, unless CMAKE_C_FLAGS has a
# level of its own. The cache of the build stays as it is.
function(kvp_optimise target)
  if(NOT CMAKE_C_FLAGS MATCHES "(^| )-O")
    target_compile_options(${target} PRIVATE "$<$<CONFIG:>:-O3>")
  endif()
endfunction()

# kvp_publish_headers(library): who links the library finds its headers; as a system's in somebody
# else's build, which then sees no warnings of theirs.
function(kvp_publish_headers library)
  set(system)
  if(NOT PROJECT_IS_TOP_LEVEL)
    set(system SYSTEM)
  endif()
  target_include_directories(${library} ${system} PUBLIC
      "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
      "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
endfunction()

# kvp_may_combine(out): are the library's files to be optimised as one? Not where the compiler cannot,
# or where the whole build is instrumented.
function(kvp_may_combine out)
  set(${out} FALSE PARENT_SCOPE)
  get_directory_property(options COMPILE_OPTIONS)
  if(NOT KVP_LTO OR WIN32 OR KVP_SANITIZE OR NOT KVP_CHECK EQUAL 0
     OR NOT CMAKE_BUILD_TYPE MATCHES "^(Release)?$" OR CMAKE_CONFIGURATION_TYPES
     OR "${CMAKE_C_FLAGS} ${options}" MATCHES "-fsanitize|--coverage|-fprofile|-ftest-coverage"
     OR NOT CMAKE_C_COMPILER_ID STREQUAL "GNU" OR CMAKE_C_COMPILER_VERSION VERSION_LESS 9)
    return()
  endif()
  set(CMAKE_REQUIRED_FLAGS "-flto")
  check_c_source_compiles("int main(void) { return 0; }" KVP_HAVE_LTO)
  set(${out} ${KVP_HAVE_LTO} PARENT_SCOPE)
endfunction()

# kvp_combine_objects(objects out): sets `out` to what the libraries of a wing are made of.
#
# In a release build with gcc the object files of the wing are optimised as one and become a single
# ordinary object. So the libraries get inlining across files, and a program that links libkvpager.a
# needs neither our compiler nor link-time optimisation. Elsewhere the objects are used as they are.
function(kvp_combine_objects objects out)
  set(${out} "$<TARGET_OBJECTS:${objects}>" PARENT_SCOPE)
  kvp_may_combine(may)
  if(NOT may)
    return()
  endif()
  # Inside one object a public function may be inlined into another: nobody replaces one of ours.
  set(flags -flto -fno-semantic-interposition)
  target_compile_options(${objects} PRIVATE ${flags})
  set(release_flags "${CMAKE_C_FLAGS} ${CMAKE_C_FLAGS_RELEASE}")
  if(NOT CMAKE_BUILD_TYPE)
    set(release_flags "-O3 ${CMAKE_C_FLAGS}") # of two levels the last one counts
  endif()
  separate_arguments(release_flags UNIX_COMMAND "${release_flags}")
  if(CMAKE_SYSROOT)
    list(APPEND release_flags "--sysroot=${CMAKE_SYSROOT}")
  endif()
  string(REGEX REPLACE "_objects$" "_combined.o" combined "${PROJECT_BINARY_DIR}/${objects}")
  add_custom_command(
      OUTPUT "${combined}"
      COMMAND "${CMAKE_C_COMPILER}" ${release_flags} ${flags} -flto-partition=one -fPIC
              -nostdlib -r -flinker-output=nolto-rel
              -o "${combined}" "$<TARGET_OBJECTS:${objects}>"
      DEPENDS "$<TARGET_OBJECTS:${objects}>"
      COMMENT "Optimising ${objects} as one object"
      COMMAND_EXPAND_LISTS VERBATIM)
  set_source_files_properties("${combined}" PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  # Makefiles know the object files in the objects' own part only: that part is to be made first.
  add_custom_target(${objects}_combined DEPENDS "${combined}")
  add_dependencies(${objects}_combined ${objects})
  set(${out} "${combined}" PARENT_SCOPE)
endfunction()

# kvp_add_test(NAME name COMMAND command... [LABELS label...] [TIMEOUT seconds] [SKIP status]
#              [DIRECTORY dir])
#
# Registers a test. It finds KVPAGER (path of the command), KVP_SOURCE, KVP_BUILD and KVP_CHECK in
# its environment. Labels: unit, model, tools, examples, fuzz, install say what it tests; `release`
# is added to those that `make test` also runs in the release build, `long` to those that `make long`
# runs instead; a test labelled `soak` runs only when asked for (make soak).
function(kvp_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;TIMEOUT;SKIP;DIRECTORY" "COMMAND;LABELS")
  if(NOT arg_NAME OR NOT arg_COMMAND OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "kvp_add_test(${ARGV}): needs NAME and COMMAND, and knows LABELS, TIMEOUT, "
                        "SKIP, DIRECTORY")
  endif()
  if("soak" IN_LIST arg_LABELS)
    set(configurations CONFIGURATIONS soak)
    set(timeout 86400)
  else()
    set(configurations)
    set(timeout 300)
  endif()
  if(arg_TIMEOUT)
    set(timeout ${arg_TIMEOUT})
  endif()
  if(CMAKE_CROSSCOMPILING) # in an emulator
    math(EXPR timeout "10 * ${timeout}")
  endif()
  if(NOT arg_DIRECTORY)
    set(arg_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
  endif()
  add_test(NAME ${arg_NAME} COMMAND ${arg_COMMAND} WORKING_DIRECTORY "${arg_DIRECTORY}"
           ${configurations})
  set_tests_properties(${arg_NAME} PROPERTIES
      TIMEOUT ${timeout}
      LABELS "${arg_LABELS}"
      ENVIRONMENT "KVPAGER=${PROJECT_BINARY_DIR}/kvpager;KVP_SOURCE=${PROJECT_SOURCE_DIR};\
KVP_BUILD=${PROJECT_BINARY_DIR};KVP_CHECK=${KVP_CHECK};UBSAN_OPTIONS=print_stacktrace=1")
  if(arg_SKIP)
    set_tests_properties(${arg_NAME} PROPERTIES SKIP_RETURN_CODE ${arg_SKIP})
  endif()
endfunction()
