# What an embedder finds: headers, both libraries, the command, and how to find them.

include(CMakePackageConfigHelpers)

kvp_list_headers(public_headers "")
install(FILES ${public_headers} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/kvpager")
kvp_list_headers(sized_headers "sized/")
install(FILES ${sized_headers} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/kvpager/sized")
install(FILES include/kvpager/kvpager.hpp DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/kvpager")
install(TARGETS kvpager_static kvpager_shared EXPORT kvpagerTargets
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(TARGET kvpager_tool)
  install(TARGETS kvpager_tool RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

set(rooms core)
foreach(switch ${KVP_SWITCHES})
  if(KVP_${switch})
    string(TOLOWER "${switch}" room)
    list(APPEND rooms ${room})
  endif()
endforeach()
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/kvpager")
install(EXPORT kvpagerTargets NAMESPACE kvpager:: DESTINATION "${package_dir}")
configure_package_config_file(
    cmake/kvpagerConfig.cmake.in "${PROJECT_BINARY_DIR}/kvpagerConfig.cmake"
    INSTALL_DESTINATION "${package_dir}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(
    "${PROJECT_BINARY_DIR}/kvpagerConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/kvpagerConfig.cmake"
              "${PROJECT_BINARY_DIR}/kvpagerConfigVersion.cmake"
        DESTINATION "${package_dir}")

# kvpager.pc finds its prefix from its own place, so that the tree can be moved, unless the
# directories were given as absolute paths.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(pc_prefix "${CMAKE_INSTALL_PREFIX}")
  set(pc_libdir "${CMAKE_INSTALL_FULL_LIBDIR}")
  set(pc_includedir "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
else()
  file(RELATIVE_PATH pc_up "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
  string(REGEX REPLACE "/$" "" pc_up "${pc_up}")
  set(pc_prefix "\${pcfiledir}/${pc_up}")
  set(pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
list(TRANSFORM KVP_SYSTEM_LIBRARIES PREPEND "-l" OUTPUT_VARIABLE pc_private)
list(JOIN pc_private " " pc_private)
configure_file(cmake/kvpager.pc.in "${PROJECT_BINARY_DIR}/kvpager.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/kvpager.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
