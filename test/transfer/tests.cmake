# A sequence moves between two processes: over sockets, and over UCX where libkvpager_ucx is built.

set(transfer "${CMAKE_CURRENT_SOURCE_DIR}/transfer")
kvp_add_test_program(kvp_two_processes
    "${transfer}/two_processes.c" "${transfer}/mini_model.c" "${transfer}/socket_link.c")
kvp_add_test(NAME transfer_socket COMMAND kvp_two_processes socket LABELS transfer)
kvp_add_test(NAME transfer_groups COMMAND kvp_two_processes groups LABELS transfer)
if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND NOT KVP_PLATFORM)
  kvp_add_test(NAME transfer_shm COMMAND kvp_two_processes shm LABELS transfer)
  # What is tested over a loopback, over shared memory, too.
  foreach(name transfer transfer_commits transfer_faults transfer_groups transfer_recurrent
          transfer_refused transfer_states)
    kvp_add_test(NAME transfer_over_shm_${name} COMMAND test_${name} LABELS transfer)
    set_property(TEST transfer_over_shm_${name} APPEND PROPERTY ENVIRONMENT KVP_TEST_LINK=shm)
  endforeach()
endif()
if(TARGET kvpager_ucx)
  target_compile_definitions(kvp_two_processes PRIVATE KVP_TEST_UCX)
  target_sources(kvp_two_processes PRIVATE "${transfer}/ucx_way.c")
  target_link_libraries(kvp_two_processes PRIVATE kvpager_ucx)
  kvp_add_test_program(kvp_ucx_link "${transfer}/ucx_link.c" "${transfer}/ucx_way.c")
  target_link_libraries(kvp_ucx_link PRIVATE kvpager_ucx)
  kvp_add_test(NAME transfer_ucx_link COMMAND kvp_ucx_link LABELS transfer SKIP 77)
  # The link's code is linked in: its requests are refused, not those that UCX makes by itself.
  kvp_add_test_program(kvp_ucx_faults "${transfer}/ucx_faults.c" "${transfer}/ucx_way.c"
                       "${PROJECT_SOURCE_DIR}/src/transfer/ucx/ucx_link.c")
  target_link_libraries(kvp_ucx_faults PRIVATE PkgConfig::KVP_UCX_LIB)
  foreach(function calloc aligned_alloc free ucp_config_read ucp_config_release ucp_init_version
          ucp_cleanup ucp_worker_create ucp_worker_destroy ucp_mem_map ucp_mem_unmap
          ucp_worker_get_address ucp_worker_release_address ucp_ep_create ucp_ep_close_nbx
          ucp_tag_recv_nbx ucp_tag_send_nbx ucp_ep_flush_nbx)
    target_link_options(kvp_ucx_faults PRIVATE "LINKER:--wrap=${function}")
  endforeach()
  kvp_add_test(NAME transfer_ucx_faults COMMAND kvp_ucx_faults LABELS transfer SKIP 77)
  # Shared memory, and TCP through the loopback interface.
  foreach(tls posix tcp)
    kvp_add_test(NAME transfer_ucx_${tls} COMMAND kvp_two_processes ${tls},self
                 LABELS transfer SKIP 77)
  endforeach()
  # The same, every message fetched by the receiver (rendezvous), as large ones are.
  kvp_add_test(NAME transfer_ucx_rendezvous COMMAND kvp_two_processes posix,self
               LABELS transfer SKIP 77)
  set_property(TEST transfer_ucx_rendezvous APPEND PROPERTY ENVIRONMENT UCX_RNDV_THRESH=64)
  # UCX reads these when it is loaded. That peers die is the point, and no news; and its hooks in
  # the system's calls do not go with ThreadSanitizer's.
  set_property(TEST transfer_socket transfer_groups transfer_ucx_link transfer_ucx_faults transfer_ucx_posix
               transfer_ucx_tcp transfer_ucx_rendezvous
               APPEND PROPERTY ENVIRONMENT
               UCX_LOG_LEVEL=fatal UCX_HANDLE_ERRORS=none UCX_WARN_UNUSED_ENV_VARS=n
               UCX_MEM_MMAP_HOOK_MODE=none)
else()
  foreach(name link faults posix tcp rendezvous)
    kvp_add_test(NAME transfer_ucx_${name} LABELS transfer SKIP 77
                 COMMAND "${KVP_BASH}" -c
                         "echo 'skipped: UCX was not found (Debian: apt-get install libucx-dev)'; exit 77")
  endforeach()
endif()
