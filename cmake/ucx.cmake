# libkvpager_ucx: links between processes over UCX (include/kvpager/ucx). A library of its own, so
# that libkvpager needs nothing; without UCX on the machine it is not built, and its tests say so.

set(KVP_UCX "AUTO" CACHE STRING "Build libkvpager_ucx: ON, OFF, or AUTO: if UCX is found")
set_property(CACHE KVP_UCX PROPERTY STRINGS AUTO ON OFF)
if(NOT KVP_UCX STREQUAL "OFF")
  pkg_check_modules(KVP_UCX_LIB QUIET IMPORTED_TARGET ucx)
endif()
if(NOT KVP_UCX_LIB_FOUND)
  if(KVP_UCX STREQUAL "ON")
    message(FATAL_ERROR "UCX is missing: pkg-config does not know ucx "
                        "(Debian: apt-get install libucx-dev)")
  endif()
  return()
endif()

file(GLOB ucx_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/tiers/ucx/*.c")
add_library(kvpager_ucx SHARED ${ucx_sources})
kvp_configure_target(kvpager_ucx)
kvp_count_coverage(kvpager_ucx)
target_include_directories(kvpager_ucx PUBLIC
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_include_directories(kvpager_ucx PRIVATE "${PROJECT_SOURCE_DIR}/src")
target_link_libraries(kvpager_ucx PRIVATE PkgConfig::KVP_UCX_LIB)
set_target_properties(kvpager_ucx PROPERTIES
    EXPORT_NAME ucx VERSION "${PROJECT_VERSION}" SOVERSION "${KVP_SOVERSION}")
add_library(kvpager::ucx ALIAS kvpager_ucx)

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
