# integrations/llama over a llama.cpp of ours (fake/), and with the real one when it is given
# (cmake/llama.cmake). Included by test/CMakeLists.txt.

if(NOT KVP_SCHED)
  return()
endif()
kvp_add_llama(kvp_llama_over_fake "${CMAKE_CURRENT_LIST_DIR}/fake")
target_link_libraries(kvp_llama_over_fake PUBLIC kvpager_static)
add_library(kvp_fake_llama STATIC "${CMAKE_CURRENT_LIST_DIR}/fake/fake.c"
            "${CMAKE_CURRENT_LIST_DIR}/fake/state.c" "${CMAKE_CURRENT_LIST_DIR}/fake/backends.c"
            "${CMAKE_CURRENT_LIST_DIR}/fake/text.c" "${CMAKE_CURRENT_LIST_DIR}/fake/samplers.c")
kvp_configure_target(kvp_fake_llama)

if(TARGET kvpager_store_static)
  kvp_add_llama_disk(kvp_llama_disk_over_fake kvp_llama_over_fake kvpager_store_static
                     "${CMAKE_CURRENT_LIST_DIR}/fake")
endif()

# kvp_add_llama_test(target source...): a program over the fake library.
function(kvp_add_llama_test target)
  kvp_add_test_program(${target} ${ARGN})
  target_include_directories(${target} PRIVATE "${KVP_LLAMA_SOURCE}/src" "${KVP_LLAMA_SOURCE}/include")
  target_include_directories(${target} SYSTEM PRIVATE
      "${PROJECT_SOURCE_DIR}/test/llama/fake")
  target_link_libraries(${target} PRIVATE kvp_llama_over_fake kvp_fake_llama)
endfunction()

kvp_add_llama_test(test_llama "${CMAKE_CURRENT_LIST_DIR}/test_llama.c")
target_link_options(test_llama PRIVATE "LINKER:--wrap=calloc")
kvp_add_test(NAME unit_llama COMMAND test_llama LABELS unit)
kvp_add_llama_test(test_llama_snapshot "${CMAKE_CURRENT_LIST_DIR}/test_snapshot.c")
kvp_add_test(NAME unit_llama_snapshot COMMAND test_llama_snapshot LABELS unit)
kvp_add_llama_test(test_llama_host "${CMAKE_CURRENT_LIST_DIR}/test_host.c")
kvp_add_test(NAME unit_llama_host COMMAND test_llama_host LABELS unit)
kvp_add_llama_test(kvp_llama_random "${CMAKE_CURRENT_LIST_DIR}/random.c")
if(TARGET kvpager_store_static)
  target_sources(kvp_llama_random PRIVATE "${CMAKE_CURRENT_LIST_DIR}/random_disk.c")
  target_compile_definitions(kvp_llama_random PRIVATE KVP_RANDOM_DISK)
  target_link_libraries(kvp_llama_random PRIVATE kvp_llama_disk_over_fake)
  foreach(call open close put get have poll work)
    target_link_options(kvp_llama_random PRIVATE "LINKER:--wrap=kvp_store_${call}")
  endforeach()
  kvp_add_llama_test(test_llama_disk "${CMAKE_CURRENT_LIST_DIR}/test_disk.c")
  target_link_libraries(test_llama_disk PRIVATE kvp_llama_disk_over_fake)
  target_link_options(test_llama_disk PRIVATE "LINKER:--wrap=calloc")
  kvp_add_test(NAME unit_llama_disk COMMAND test_llama_disk LABELS unit)
endif()
set(steps 100000)
if(KVP_SANITIZE OR KVP_COVERAGE)
  set(steps 20000)
elseif(KVP_CHECK EQUAL 0)
  set(steps 400000)
endif()
foreach(seed 1 10)
  kvp_add_test(NAME llama_random_${seed} LABELS model release
               COMMAND kvp_llama_random --seed ${seed} --steps ${steps})
endforeach()
kvp_add_test(NAME llama_random_plant COMMAND kvp_llama_random --plant LABELS model)
set_tests_properties(llama_random_plant PROPERTIES PASS_REGULAR_EXPRESSION "a wrong logit")

set(serve "${KVP_LLAMA_SOURCE}/serve")
kvp_add_llama_test(test_serve "${CMAKE_CURRENT_LIST_DIR}/test_serve.c" "${serve}/options.c"
                   "${serve}/engine/text.c" "${serve}/engine/limits.c" "${serve}/engine/sampling.c"
                   "${serve}/engine/backends.c")
kvp_add_test(NAME unit_serve COMMAND test_serve LABELS unit)

# Its engine's thread, which needs no libmicrohttpd.
if(KVP_JANSSON_FOUND AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
  file(GLOB serve_engine CONFIGURE_DEPENDS "${serve}/engine/*.c")
  kvp_add_llama_test(test_serve_loop "${CMAKE_CURRENT_LIST_DIR}/test_serve_loop.c"
                     "${serve}/options.c" ${serve_engine})
  if(TARGET kvp_llama_disk_over_fake)
    target_compile_definitions(test_serve_loop PRIVATE KVP_SERVE_DISK)
    target_link_libraries(test_serve_loop PRIVATE kvp_llama_disk_over_fake)
  endif()
  kvp_serve_record(test_serve_loop)
  target_link_libraries(test_serve_loop PRIVATE PkgConfig::KVP_JANSSON Threads::Threads)
  target_link_options(test_serve_loop PRIVATE "LINKER:--wrap=kvpi_job_add"
                      "LINKER:--wrap=kvp_llama_finish")
  kvp_add_test(NAME unit_serve_loop COMMAND test_serve_loop LABELS unit threads)
  add_dependencies(tests_with_threads test_serve_loop)
endif()

# kvpager-serve over the fake library: serve/*.py ask it over HTTP.
if(KVP_CAN_SERVE)
  kvp_add_serve(kvp_serve_fake kvp_llama_over_fake "${CMAKE_CURRENT_LIST_DIR}/fake")
  if(TARGET kvp_llama_disk_over_fake)
    target_link_libraries(kvp_serve_fake PRIVATE kvp_llama_disk_over_fake)
  endif()
  if(TARGET kvpager_zmq)
    target_link_libraries(kvp_serve_fake PRIVATE kvpager_zmq_static)
  endif()
  target_link_libraries(kvp_serve_fake PRIVATE kvp_fake_llama)
  set(names api bad_input gone lora memory restart)
  if(TARGET kvp_llama_disk_over_fake)
    list(APPEND names disk window)
  endif()
  if(TARGET kvpager_zmq)
    list(APPEND names publish)
  endif()
  if(TARGET PkgConfig::KVP_ZSTD)
    list(APPEND names record)
  endif()
  foreach(name ${names})
    kvp_add_test(NAME serve_${name} LABELS tools
                 COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/serve/${name}.py")
  endforeach()
  kvp_add_test(NAME serve_page LABELS long SKIP 77
               COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/serve/page.py")
  kvp_add_test(NAME serve_clients LABELS long
               COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/serve/clients.py" 5)
  kvp_add_test(NAME serve_soak LABELS tools soak TIMEOUT 4200
               COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/serve/soak.py" 3600)
else()
  message(STATUS "no tests of kvpager-serve: libmicrohttpd is missing (scripts/setup.sh serve)")
endif()

# The real one: scripts/llama.sh gets it, with a model.
set(KVP_LLAMA_MODEL "" CACHE FILEPATH "A model (GGUF) for tests with libllama")
if(KVP_LLAMA AND KVP_LLAMA_LIBRARY AND KVP_LLAMA_MODEL)
  add_executable(kvp_llama_real "${CMAKE_CURRENT_LIST_DIR}/real.c"
                 "${CMAKE_CURRENT_LIST_DIR}/f32_model.c" "${CMAKE_CURRENT_LIST_DIR}/window_model.c")
  kvp_configure_target(kvp_llama_real)
  target_include_directories(kvp_llama_real PRIVATE "${KVP_LLAMA_SOURCE}/src")
  target_include_directories(kvp_llama_real SYSTEM PRIVATE ${KVP_LLAMA_INCLUDE})
  target_link_libraries(kvp_llama_real PRIVATE kvpager_llama ${KVP_LLAMA_LIBRARY} m)
  if(TARGET kvpager_llama_disk)
    target_compile_definitions(kvp_llama_real PRIVATE KVP_REAL_DISK)
    target_link_libraries(kvp_llama_real PRIVATE kvpager_llama_disk)
    kvp_add_test(NAME llama_real_disk LABELS llama_real TIMEOUT 2400
                 COMMAND kvp_llama_real "${KVP_LLAMA_MODEL}" disk)
  endif()
  add_executable(kvp_llama_steps "${KVP_LLAMA_SOURCE}/bench/steps.c")
  kvp_configure_target(kvp_llama_steps)
  target_include_directories(kvp_llama_steps SYSTEM PRIVATE ${KVP_LLAMA_INCLUDE})
  target_link_libraries(kvp_llama_steps PRIVATE kvpager_llama ${KVP_LLAMA_LIBRARY})
  target_link_options(kvp_llama_steps PRIVATE "LINKER:--wrap=llama_decode")
  if(KVP_CXX) # what it allocates is told by a function of C++; `kvpager size` is compared with it
    add_executable(kvp_llama_allocated "${CMAKE_CURRENT_LIST_DIR}/allocated.cpp")
    target_compile_features(kvp_llama_allocated PRIVATE cxx_std_17)
    target_compile_options(kvp_llama_allocated PRIVATE -Wall -Wextra)
    get_filename_component(unpacked "${KVP_LLAMA_MODEL}" DIRECTORY)
    target_include_directories(kvp_llama_allocated SYSTEM PRIVATE ${KVP_LLAMA_INCLUDE}
                               "${unpacked}/src")
    target_link_libraries(kvp_llama_allocated PRIVATE ${KVP_LLAMA_LIBRARY})
    kvp_add_test(NAME llama_real_allocated LABELS llama_real TIMEOUT 600
                 COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/allocated.py"
                         "$<TARGET_FILE:kvp_llama_allocated>")
  else()
    add_custom_target(kvp_llama_allocated)
  endif()
  kvp_add_test(NAME llama_real_scene LABELS llama_real TIMEOUT 2400
               COMMAND kvp_llama_real "${KVP_LLAMA_MODEL}" scene)
  kvp_add_test(NAME llama_real_f32 LABELS llama_real TIMEOUT 2400
               COMMAND kvp_llama_real "${KVP_LLAMA_MODEL}" f32)
  kvp_add_test(NAME llama_real_cells LABELS llama_real TIMEOUT 2400
               COMMAND kvp_llama_real "${KVP_LLAMA_MODEL}" cells)
  kvp_add_test(NAME llama_real_host LABELS llama_real TIMEOUT 2400
               COMMAND kvp_llama_real "${KVP_LLAMA_MODEL}" host)
  kvp_add_test(NAME llama_real_bits LABELS llama_real TIMEOUT 2400
               COMMAND kvp_llama_real "${KVP_LLAMA_MODEL}" bits)
  set(scenes scene cells host forks bits)
  if(TARGET kvpager_llama_disk)
    list(APPEND scenes disk)
  endif()
  foreach(name ${scenes})
    kvp_add_test(NAME llama_real_window_${name} LABELS llama_real TIMEOUT 600
                 COMMAND kvp_llama_real "${KVP_LLAMA_MODEL}" ${name} window)
  endforeach()
  if(TARGET kvpager_serve)
    kvp_add_test(NAME llama_real_serve LABELS llama_real TIMEOUT 1200
                 COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/serve/real.py"
                         "$<TARGET_FILE:kvpager_serve>" "${KVP_LLAMA_MODEL}")
    kvp_add_test(NAME llama_real_serve_window LABELS llama_real TIMEOUT 1200
                 COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/serve/window.py"
                         "$<TARGET_FILE:kvpager_serve>" "${KVP_LLAMA_MODEL}"
                         "$<TARGET_FILE:kvp_llama_real>")
    if(KVP_GGML) # the same with kvpager's attention
      kvp_add_test(NAME llama_real_serve_attention LABELS llama_real TIMEOUT 1200
                   COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/serve/real.py"
                           "$<TARGET_FILE:kvpager_serve>" "${KVP_LLAMA_MODEL}")
      set_tests_properties(llama_real_serve_attention PROPERTIES
          ENVIRONMENT "GGML_BACKEND_PATH=$<TARGET_FILE:kvpager_ggml>")
    endif()
  endif()
endif()
