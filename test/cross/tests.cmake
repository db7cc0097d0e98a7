# The one-file build on another processor, of sources that are compiled here anyway.
if(KVP_CHECK EQUAL 0 AND NOT KVP_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  kvp_add_test(NAME cross_replay
               COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/cross/replay.py"
                       "${CMAKE_CURRENT_BINARY_DIR}/cross_replay"
               LABELS install long TIMEOUT 1200 SKIP 77)
endif()
