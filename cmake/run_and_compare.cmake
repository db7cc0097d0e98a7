# cmake -DPROGRAM=... [-DEXPECTED=file] [-DWORK=dir] [-DEMULATOR=command] -P run_and_compare.cmake
#
# Runs PROGRAM, by the emulator if it is of another processor; fails unless it exits with 0 and, where EXPECTED is given, prints exactly that.

execute_process(COMMAND ${EMULATOR} "${PROGRAM}" WORKING_DIRECTORY "${WORK}"
                RESULT_VARIABLE result OUTPUT_VARIABLE actual ERROR_VARIABLE errors)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} ended with '${result}'\n${actual}${errors}")
endif()
if(NOT EXPECTED)
  message("${actual}")
  return()
endif()
file(READ "${EXPECTED}" expected)
if(actual STREQUAL expected)
  return()
endif()
get_filename_component(name "${PROGRAM}" NAME)
set(actual_file "${WORK}/${name}.actual")
file(WRITE "${actual_file}" "${actual}")
find_program(diff_program diff)
if(diff_program)
  execute_process(COMMAND "${diff_program}" -u "${EXPECTED}" "${actual_file}")
endif()
message(FATAL_ERROR "the output differs from ${EXPECTED}; it is in ${actual_file}")
