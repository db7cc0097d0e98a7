/* Command line options: a table says what there is, a loop takes them one by one. */
#ifndef KVPI_ARGS_H
#define KVPI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kvpi_args_option {
    const char *name;  /* "--blocks" */
    const char *value; /* how the help calls its value; NULL: it has none */
    const char *help;  /* one or more lines, separated by newlines; NULL: not shown */
    char letter;       /* 'o' for -o, 0 for none */
} kvpi_args_option;

/* What kvpi_args_next returns besides an index into the options. */
enum {
    KVPI_ARGS_END = -1,     /* no more arguments */
    KVPI_ARGS_OPERAND = -2, /* not an option: a file, for instance; "-" is one */
    KVPI_ARGS_WRONG = -3    /* unknown or incomplete; a message was printed */
};

typedef struct kvpi_args {
    const char *command; /* for messages: "replay" */
    int argc;
    char **argv;
    const kvpi_args_option *options; /* [n_options] */
    size_t n_options;
    int next; /* start at 1, past the command's name */
    bool only_operands;
} kvpi_args;

/* Take the next argument. --name VALUE, --name=VALUE, -l VALUE and -lVALUE are understood; after
 * "--" everything is an operand.
 *
 * Gives:   value    the option's value, or the operand; NULL for an option without one
 * Returns: the index of the option; KVPI_ARGS_...
 */
int kvpi_args_next(kvpi_args *args, const char **value);

/* Print "kvpager COMMAND: message", and how to get help, to stderr.
 *
 * Returns: KVPI_ARGS_WRONG
 */
int kvpi_args_wrong(const kvpi_args *args, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* Read a whole number within a range, all of the text.
 *
 * Takes:   option   index, for the message
 *          text     decimal digits
 * Gives:   out      on success only
 * Returns: 0; KVPI_ARGS_WRONG, a message was printed
 */
int kvpi_args_number(const kvpi_args *args, int option, const char *text, const uint64_t range[2],
                     uint64_t *out);

/* Read a number with at most three decimals, as thousandths: "0.5" -> 500.
 *
 * Returns: as kvpi_args_number
 */
int kvpi_args_milli(const kvpi_args *args, int option, const char *text, const uint64_t range[2],
                    uint64_t *out);

/* Read a number of bytes: "40GiB", "80G", "1.5T", "131072", "512kB". K, M, G and T, alone or as in
 * KiB, are powers of 1024; kB, MB, GB and TB are powers of 1000. A fraction is allowed before a
 * unit; the result is rounded down to whole bytes.
 *
 * Returns: 0 with *out >= 1; KVPI_ARGS_WRONG, a message was printed
 */
int kvpi_args_size(const kvpi_args *args, int option, const char *text, uint64_t *out);

/* Read a choice.
 *
 * Takes:   choices  texts, NULL after the last
 * Gives:   out      the index of the one that was given
 * Returns: 0; KVPI_ARGS_WRONG, a message was printed
 */
int kvpi_args_choice(const kvpi_args *args, int option, const char *text,
                     const char *const *choices, size_t *out);

/* Read "on" or "off" (false). Returns: as kvpi_args_choice */
int kvpi_args_on_off(const kvpi_args *args, int option, const char *text, bool *out);

/* Print the table of options for --help to stdout. */
void kvpi_args_print(const kvpi_args_option *options, size_t n_options);

#endif
