# Writes a C file with text files as arrays, so that a program carries them with it.
#
#   cmake -D OUT=file.c -D PREFIX=kvpi_page_ -D "FILES=a.css;b.js" -P embed.cmake
#
# a.css becomes `const char kvpi_page_a_css[]`, with a zero byte at its end.

set(text "/* Made by cmake/embed.cmake. */\n")
foreach(file IN LISTS FILES)
  get_filename_component(name "${file}" NAME)
  string(MAKE_C_IDENTIFIER "${name}" name)
  file(READ "${file}" bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
  string(APPEND text
         "extern const char ${PREFIX}${name}[];\nconst char ${PREFIX}${name}[] = {\n${bytes}0x00};\n")
endforeach()
file(WRITE "${OUT}" "${text}")
