/* A command's options: one table says what there is, how its values are read and where they go. The
 * reader, --help and, from that, completions and man pages are made of it. */
#ifndef KVPI_ARGS_H
#define KVPI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kvpi_args kvpi_args;
typedef struct kvpi_args_option kvpi_args_option;

/* Reads a value.
 *
 * Takes:   option   its row
 *          text     the value; NULL when the option has none
 * Gives:   at       the row's place in the command's options; on success only
 * Returns: 0; KVPI_ARGS_WRONG, a message was printed
 */
typedef int kvpi_args_reader(const kvpi_args *args, const kvpi_args_option *option,
                             const char *text, void *at);

struct kvpi_args_option {
    const char *name;           /* "--blocks"; NULL: what is not an option, such as a file */
    const char *value;          /* how the help calls its value; NULL: it has none */
    const char *help;           /* one or more lines, separated by newlines */
    kvpi_args_reader *read;     /* NULL: prints the help */
    size_t at;                  /* where the value goes: offset in the command's options */
    uint64_t least, most;       /* of numbers */
    const char *const *choices; /* NULL after the last */
    const char *title;          /* of a group of options that begins here */
    char letter;                /* 'o' for -o, 0 for none */
};

#define KVPI_ARGS_HELP                                                                             \
    {                                                                                              \
        "--help", .help = "print this text", .letter = 'h'                                         \
    }

typedef struct kvpi_args_command {
    const char *name;                /* for messages: "replay" */
    const char *about;               /* the help before the options, with a newline at its end */
    const kvpi_args_option *options; /* [n_options] 128 at most */
    size_t n_options;
    const char *more; /* the help after the options; NULL: none */
    int (*check)(const kvpi_args *args,
                 void *out); /* of options together; as a reader. NULL: none */
} kvpi_args_command;

struct kvpi_args {
    const kvpi_args_command *is;
    const char *command; /* its name */
    int argc;
    char **argv;
    int next;
    uint64_t given[2]; /* bit i of all: option i of the table */
};

enum {
    KVPI_ARGS_GO = -1,   /* the command goes on; no exit status */
    KVPI_ARGS_WRONG = -3 /* a message was printed */
};

/* Read the command line. --name VALUE, --name=VALUE, -l VALUE and -lVALUE are understood; after
 * "--" everything is an operand.
 *
 * Takes:   argv     argv[0] is the command's name
 * Gives:   out      values where the rows say
 * Returns: KVPI_ARGS_GO; TOOL_OK, the help was printed; TOOL_USAGE, a message was printed
 */
int kvpi_args_parse(kvpi_args *args, const kvpi_args_command *command, int argc, char **argv,
                    void *out);

/* Print "kvpager COMMAND: message", and how to get help, to stderr.
 *
 * Returns: KVPI_ARGS_WRONG
 */
int kvpi_args_wrong(const kvpi_args *args, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* The same, for commands. Returns: TOOL_USAGE */
#define kvpi_args_usage(...) (kvpi_args_wrong(__VA_ARGS__), TOOL_USAGE)

/* Was the option given? Not if the table has none of this name. */
bool kvpi_args_given(const kvpi_args *args, const char *name);

/* The name of the first option of the table, from `first` to `last`, that was given; or NULL. */
const char *kvpi_args_first(const kvpi_args *args, const char *first, const char *last);

/* The first of a list of names, NULL after the last, that was given; or NULL. */
const char *kvpi_args_any(const kvpi_args *args, const char *const *names);

/* Say that two options exclude each other, or that one needs something else; of NULL there is
 * nothing to say.
 *
 * Returns: KVPI_ARGS_WRONG; 0 for NULL
 */
int kvpi_args_exclude(const kvpi_args *args, const char *a, const char *b);
int kvpi_args_needs(const kvpi_args *args, const char *name, const char *what);

/* Readers, and what `at` is: a flag that is set, or taken back (bool); a text (const char *); the
 * one file that there may be (const char *); "on" or "off", or the first or second choice (bool);
 * which choice (uint32_t, or an enum); numbers of the row's range (uint64_t, uint32_t), those with
 * three decimals as thousandths; sizes, such as "40GiB" (base/amount.h), of which one below 1 MiB
 * needs a unit, and those of a few bytes, which do not (uint64_t). */
kvpi_args_reader kvpi_args_yes;
kvpi_args_reader kvpi_args_no;
kvpi_args_reader kvpi_args_text;
kvpi_args_reader kvpi_args_file;
kvpi_args_reader kvpi_args_either;
kvpi_args_reader kvpi_args_choice;
kvpi_args_reader kvpi_args_number;
kvpi_args_reader kvpi_args_number32;
kvpi_args_reader kvpi_args_power;
kvpi_args_reader kvpi_args_milli;
kvpi_args_reader kvpi_args_size;
kvpi_args_reader kvpi_args_bytes;

extern const char *const kvpi_args_on_off[];

/* A command of several. */
typedef struct kvpi_args_subcommand {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is its name; gives an exit status */
    const char *help;                  /* a line */
} kvpi_args_subcommand;

typedef struct kvpi_args_commands {
    const char *name; /* of the whole: "kvpager trace" */
    const char *kind; /* of each, for messages: "subcommand" */
    const char *about;
    const char *more;
    int width;                      /* of the names in the usage */
    const kvpi_args_subcommand *of; /* [n] */
    size_t n;
} kvpi_args_commands;

/* Run the command that argv[1] names, or print the usage. Returns: an exit status */
int kvpi_args_dispatch(const kvpi_args_commands *commands, int argc, char **argv);

#endif
