# The Python package, installed as a user would and tested: `ctest -R python`. In the check build the
# library inside the wheel audits the whole cache after each call, too.
if(NOT KVP_SANITIZE AND NOT KVP_FUZZ)
  kvp_add_test(NAME python
               COMMAND "${CMAKE_COMMAND}" -E env "PYTHON=${Python3_EXECUTABLE}"
                       "${KVP_BASH}" "${PROJECT_SOURCE_DIR}/python/run_tests.sh"
                       "${PROJECT_BINARY_DIR}/python"
               LABELS python release TIMEOUT 1200)
endif()
