# The protocol of steps as Promela models (run.py), and their mutants, which must be caught. Without
# spin both are skipped.

foreach(what models mutants)
  kvp_add_test(NAME spin_${what}
               COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/spin/run.py" ${what}
               LABELS spin SKIP 77 TIMEOUT 900)
  set_tests_properties(spin_${what} PROPERTIES COST 100) # the longest begin first
endforeach()
