# The pages of the benchmark agree with its sources, and its figures with what is promised.
foreach(script aims growth)
  kvp_add_test(NAME bench_${script}_self_test
               COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/bench/${script}.py" --self-test
               LABELS unit)
endforeach()
kvp_add_test(NAME bench_aims COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/bench/aims.py"
             LABELS unit)
kvp_add_test(NAME bench_growth COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/bench/growth.py" --check
             LABELS unit)
