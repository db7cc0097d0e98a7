# Man pages and completions of the command, from what it prints of its options:
#   cmake -D KVPAGER=<command> -D OUT=<folder> -P manual.cmake
# gives OUT/man1/kvpager*.1, OUT/bash/kvpager and OUT/zsh/_kvpager.

cmake_minimum_required(VERSION 3.22)

function(run out)
  execute_process(COMMAND "${KVPAGER}" ${ARGN} OUTPUT_VARIABLE text RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "kvpager ${ARGN}: ${status}")
  endif()
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

function(write_man name summary text)
  string(REPLACE "\\" "\\e" text "${text}")
  string(REPLACE "-" "\\-" text "${text}")
  string(REGEX REPLACE "\n([.'])" "\n\\\\&\\1" text "${text}")
  string(TOUPPER "${name}" title)
  string(REPLACE "-" "\\-" shown "${name}")
  file(WRITE "${OUT}/man1/${name}.1"
       ".TH ${title} 1 \"\" \"${version}\" \"kvpager\"\n.SH NAME\n${shown} \\- ${summary}\n"
       ".SH DESCRIPTION\n.nf\n${text}.fi\n")
endfunction()

# The options of a help text: names for bash, and with their first line for zsh.
function(read_options text out_names out_described)
  string(REPLACE ";" "," text "${text}") # CMake's own mark, as brackets are
  string(REGEX REPLACE "[][]" "" text "${text}")
  string(REGEX MATCHALL "\n  (-[a-z], )?--[a-z-]+[^\n]*" lines "${text}")
  set(names "")
  set(described "")
  foreach(line ${lines})
    string(REGEX REPLACE "^\n  (-[a-z], )?(--[a-z-]+).*" "\\2" name "${line}")
    set(help "")
    if(line MATCHES "^\n  (-[a-z], )?--[a-z-]+( [^ ]+)? +([^ ].*)$")
      set(help "${CMAKE_MATCH_3}")
    endif()
    if(name IN_LIST names)
      continue()
    endif()
    string(REPLACE "'" "" help "${help}")
    string(REPLACE ":" "" help "${help}")
    list(APPEND names ${name})
    string(APPEND described " '${name}:${help}'")
  endforeach()
  string(REPLACE ";" " " names "${names}")
  set(${out_names} "${names}" PARENT_SCOPE)
  set(${out_described} "${described}" PARENT_SCOPE)
endfunction()

run(version --version)
string(STRIP "${version}" version)
run(usage help)
run(list size --list)
string(REGEX REPLACE "\n\nAccelerators.*" "" models "${list}")
string(REGEX REPLACE ".*\nAccelerators" "" devices "${list}")
foreach(kind models devices)
  string(REGEX MATCHALL "\n  [a-z][a-z0-9.-]*-[a-z0-9.-]+ " ${kind} "${${kind}}")
  string(REGEX REPLACE "[\n ;]+" " " ${kind} "${${kind}}")
endforeach()

string(REGEX REPLACE "\n\nOptions:.*" "\n" commands "${usage}")
string(REGEX REPLACE ".*\nCommands:" "" commands "${commands}")
string(REGEX MATCHALL "\n  [a-z]+ +[^\n]+" commands "${commands}")
set(names "")
set(bash "")
set(zsh "")
set(zsh_commands "")
foreach(line ${commands})
  string(REGEX REPLACE "^\n  ([a-z]+) +(.*)$" "\\1" name "${line}")
  string(REGEX REPLACE "^\n  ([a-z]+) +(.*)$" "\\2" summary "${line}")
  run(text help ${name})
  string(REGEX MATCHALL "kvpager ${name} [a-z]+ " subs "${text}") # of store and trace
  list(REMOVE_DUPLICATES subs)
  foreach(sub ${subs})
    string(REGEX REPLACE "^kvpager ${name} ([a-z]+) $" "\\1" sub "${sub}")
    run(more help ${name} ${sub})
    string(APPEND text "\n${more}")
    string(APPEND sub_names " ${sub}")
  endforeach()
  write_man(kvpager-${name} "${summary}" "${text}")
  read_options("${text}" options described)
  list(APPEND names ${name})
  string(APPEND bash "    ${name}) words=\"${options}\"; first=\"${sub_names}\" ;;\n")
  string(APPEND zsh "  ${name}) options=(${described}); first=(${sub_names}) ;;\n")
  string(APPEND zsh_commands " '${name}:${summary}'")
  set(sub_names "")
endforeach()
write_man(kvpager "the memory manager for the KV cache of large language models" "${usage}")
string(REPLACE ";" " " names "${names}")

file(WRITE "${OUT}/bash/kvpager" "# Completion of kvpager in bash.
_kvpager() {
  local current=\"\${COMP_WORDS[COMP_CWORD]}\" before=\"\${COMP_WORDS[COMP_CWORD-1]}\" words= first=
  COMPREPLY=()
  if [ \"\$COMP_CWORD\" -eq 1 ]; then
    COMPREPLY=(\$(compgen -W \"${names} help --help --version\" -- \"\$current\"))
    return
  fi
  case \"\${COMP_WORDS[1]}\" in
${bash}    help) first=\"${names}\" ;;
  esac
  case \"\$before\" in
    --model) words=\"${models}\" ;;
    --device) words=\"${devices}\" ;;
    *)
      if [ \"\$COMP_CWORD\" -eq 2 ] && [ -n \"\$first\" ]; then words=\"\$first \$words\"
      elif [ \"\${current#-}\" = \"\$current\" ]; then return; fi ;;
  esac
  COMPREPLY=(\$(compgen -W \"\$words\" -- \"\$current\"))
}
complete -o default -F _kvpager kvpager
")
file(WRITE "${OUT}/zsh/_kvpager" "#compdef kvpager
local -a commands options first
commands=(${zsh_commands} 'help:explain a command')
if (( CURRENT == 2 )); then
  _describe command commands
  return
fi
case \$words[2] in
${zsh}  help) first=(${names}) ;;
esac
case \$words[CURRENT-1] in
  --model) compadd ${models} ; return ;;
  --device) compadd ${devices} ; return ;;
esac
if [[ \$PREFIX == -* ]]; then
  _describe option options
elif (( CURRENT == 3 && \$#first )); then
  compadd \$first
else
  _files
fi
")
