# What an embedder finds: headers, libraries, the command, and how to find them.

include(CMakePackageConfigHelpers)

kvp_list_headers(public_headers)
install(FILES ${public_headers} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/kvpager")
install(FILES include/kvpager/kvpager.hpp DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/kvpager")
install(TARGETS kvpager_static ${KVP_SHARED_LIBRARIES} EXPORT kvpagerTargets
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
# --strip is for programs and shared libraries; the archive keeps its symbols and loses the rest.
if(CMAKE_STRIP)
  string(CONFIGURE [[
if(CMAKE_INSTALL_DO_STRIP)
  file(REAL_PATH "@CMAKE_INSTALL_LIBDIR@" libdir BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}")
  execute_process(COMMAND "@CMAKE_STRIP@" --strip-debug "$ENV{DESTDIR}${libdir}/libkvpager.a")
endif()
]] strip_archive @ONLY)
  install(CODE "${strip_archive}")
endif()
if(TARGET kvpager_tool)
  install(TARGETS kvpager_tool RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
# What the command says of its options, made when it is installed: it must run here.
if(TARGET kvpager_tool AND NOT CMAKE_CROSSCOMPILING)
  set(manual "${PROJECT_BINARY_DIR}/manual")
  install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" -D \"KVPAGER=$<TARGET_FILE:kvpager_tool>\"
      -D \"OUT=${manual}\" -P \"${PROJECT_SOURCE_DIR}/cmake/manual.cmake\" COMMAND_ERROR_IS_FATAL ANY)")
  install(DIRECTORY "${manual}/man1" DESTINATION "${CMAKE_INSTALL_MANDIR}")
  install(FILES "${manual}/bash/kvpager"
          DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
  install(FILES "${manual}/zsh/_kvpager" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions")
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
if(TARGET kvpager_data)
  configure_file(cmake/kvpager-data.pc.in "${PROJECT_BINARY_DIR}/kvpager-data.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/kvpager-data.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endif()
