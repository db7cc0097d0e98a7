# A sequence moves between two processes: over sockets, shared memory and TCP.

set(transfer "${CMAKE_CURRENT_SOURCE_DIR}/transfer")
kvp_add_test_program(kvp_two_processes
    "${transfer}/two_processes.c" "${transfer}/mini_model.c" "${transfer}/socket_link.c")
kvp_add_test(NAME transfer_socket COMMAND kvp_two_processes socket LABELS transfer)
kvp_add_test(NAME transfer_groups COMMAND kvp_two_processes groups LABELS transfer)
if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND NOT KVP_PLATFORM)
  kvp_add_test(NAME transfer_shm COMMAND kvp_two_processes shm LABELS transfer)
  # What is tested over a loopback, over shared memory and TCP, too. Scenes of two of these tests need
  # a link that is full after n_messages; TCP is full when the system says so.
  foreach(name transfer transfer_commits transfer_faults transfer_groups transfer_recurrent
          transfer_refused transfer_states)
    foreach(link shm tcp)
      if(link STREQUAL "tcp" AND name MATCHES "recurrent|refused")
        continue()
      endif()
      kvp_add_test(NAME transfer_over_${link}_${name} COMMAND test_${name} LABELS transfer)
      set_property(TEST transfer_over_${link}_${name} APPEND PROPERTY ENVIRONMENT
                   KVP_TEST_LINK=${link})
    endforeach()
  endforeach()
endif()
kvp_add_test(NAME transfer_tcp COMMAND kvp_two_processes tcp LABELS transfer)
