# The proof of bounded work counts page faults, which means nothing beside the audit after each call.
set_tests_properties(unit_nano_defects PROPERTIES LABELS "unit;release")
