# libkvpager_ucx: links between processes over UCX (include/kvpager/ucx). A library of its own, so
# that libkvpager needs nothing; without UCX on the machine it is not built, and its tests say so.

set(KVP_UCX_default OFF)
if(PROJECT_IS_TOP_LEVEL)
  set(KVP_UCX_default AUTO)
endif()
set(KVP_UCX "${KVP_UCX_default}" CACHE STRING
    "Build libkvpager_ucx: ON, OFF, or AUTO: if UCX is found")
set_property(CACHE KVP_UCX PROPERTY STRINGS AUTO ON OFF)
if(NOT KVP_UCX STREQUAL "AUTO" AND KVP_UCX AND NOT KVP_TRANSFER)
  message(FATAL_ERROR "KVP_UCX needs KVP_TRANSFER")
endif()
if(NOT KVP_UCX OR NOT KVP_TRANSFER)
  return() # whatever an earlier run found
endif()
if(KVP_UCX STREQUAL "AUTO")
  kvp_find_module(KVP_UCX_LIB ucx)
else()
  kvp_require_module(KVP_UCX_LIB ucx "KVP_UCX asks for it" libucx-dev)
endif()
if(NOT KVP_UCX_LIB_FOUND)
  return()
endif()

file(GLOB ucx_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/transfer/ucx/*.c")
add_library(kvpager_ucx SHARED ${ucx_sources})
kvp_configure_target(kvpager_ucx)
kvp_count_coverage(kvpager_ucx)
kvp_optimise(kvpager_ucx)
kvp_publish_headers(kvpager_ucx)
target_include_directories(kvpager_ucx PRIVATE "${PROJECT_SOURCE_DIR}/src")
target_link_libraries(kvpager_ucx PRIVATE PkgConfig::KVP_UCX_LIB)
set_target_properties(kvpager_ucx PROPERTIES
    EXPORT_NAME ucx VERSION "${PROJECT_VERSION}" SOVERSION "${KVP_SOVERSION}")
add_library(kvpager::ucx ALIAS kvpager_ucx)
if(TARGET lib)
  add_dependencies(lib kvpager_ucx)
endif()

if(KVP_INSTALL)
  file(GLOB ucx_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/kvpager/ucx/*.h")
  install(FILES ${ucx_headers} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/kvpager/ucx")
  install(TARGETS kvpager_ucx EXPORT kvpagerUcxTargets
          LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(EXPORT kvpagerUcxTargets NAMESPACE kvpager::
          DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/kvpager")
  configure_file(cmake/kvpager-ucx.pc.in "${PROJECT_BINARY_DIR}/kvpager-ucx.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/kvpager-ucx.pc"
          DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endif()
