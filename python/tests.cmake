# The Python package, installed and tested: `ctest -R python`. In the release build as a user would
# (in `make soak`; `make adapters` and `make wheels` install it so, too); in the check build with the
# library of that build, which audits the whole cache after each call.
if(NOT KVP_SANITIZE AND NOT KVP_FUZZ)
  set(labels python)
  if(KVP_CHECK EQUAL 0)
    list(APPEND labels soak)
  endif()
  kvp_add_test(NAME python
               COMMAND "${CMAKE_COMMAND}" -E env "PYTHON=${Python3_EXECUTABLE}" KVP_SEEDS=2
                       "${KVP_BASH}" "${PROJECT_SOURCE_DIR}/python/run_tests.sh"
                       "${PROJECT_BINARY_DIR}/python"
               LABELS ${labels} TIMEOUT 1200)
  set_tests_properties(python PROPERTIES COST 100) # the longest begin first
endif()
