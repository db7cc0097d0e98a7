/* Owns the command line's syntax: which words are options, which of them take a value, and how
 * numbers, sizes and choices are written. Every complaint names the option and ends with the way to
 * the help; nothing is guessed and nothing that follows a number is ignored.
 */
#include "tool/args.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/amount.h"
#include "tool/input/escape.h"
#include "tool/input/nearest.h"
#include "tool/tool.h"

#define HELP_COLUMN 27
#define LEAST_BARE  (UINT64_C(1) << 20) /* less is no memory, disk or bandwidth */

int kvpi_args_wrong(const kvpi_args *args, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "kvpager %s: ", args->command);
    va_start(arguments, format);
    kvpi_escape_print(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nTry 'kvpager %s --help'.\n", args->command);
    return KVPI_ARGS_WRONG;
}

/* ------------------------------------------------------------------------------- the help */

static void print_help_lines(const char *help)
{
    for (;;) {
        size_t n = strcspn(help, "\n");
        printf("%.*s\n", (int)n, help);
        if (help[n] == '\0')
            return;
        help += n + 1;
        printf("%*s", HELP_COLUMN, "");
    }
}

static void print_option(const kvpi_args_option *option)
{
    int n = option->letter != 0 ? printf("  -%c, ", option->letter) : printf("  ");
    n += printf("%s", option->name);
    if (option->value != NULL)
        n += printf(" %s", option->value);
    if (n >= HELP_COLUMN) {
        putchar('\n');
        n = 0;
    }
    printf("%*s", HELP_COLUMN - n, "");
    print_help_lines(option->help);
}

static void print_help(const kvpi_args_command *command)
{
    fputs(command->about, stdout);
    for (size_t i = 0; i < command->n_options; i++) {
        if (command->options[i].title != NULL)
            printf("\n%s:\n", command->options[i].title);
        if (command->options[i].name != NULL)
            print_option(&command->options[i]);
    }
    if (command->more != NULL)
        fputs(command->more, stdout);
}

/* ------------------------------------------------------------------------------- the words */

/* NULL as name finds the operand's row. */
static const kvpi_args_option *find(const kvpi_args *args, const char *name, size_t n_bytes)
{
    for (size_t i = 0; i < args->is->n_options; i++) {
        const char *here = args->is->options[i].name;
        if (here == NULL || name == NULL
                ? here == name
                : strlen(here) == n_bytes && memcmp(here, name, n_bytes) == 0)
            return &args->is->options[i];
    }
    return NULL;
}

static const kvpi_args_option *find_letter(const kvpi_args *args, char letter)
{
    for (size_t i = 0; i < args->is->n_options; i++)
        if (args->is->options[i].letter == letter)
            return &args->is->options[i];
    return NULL;
}

static int refuse(const kvpi_args *args, const char *word, size_t n_bytes)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)n_bytes, word);
    kvpi_nearest nearest = kvpi_nearest_begin(name);
    for (size_t i = 0; i < args->is->n_options && word[1] == '-'; i++)
        if (args->is->options[i].name != NULL)
            kvpi_nearest_try(&nearest, args->is->options[i].name);
    return kvpi_args_wrong(args, "unknown option '%.*s'%s", (int)n_bytes, word,
                           kvpi_nearest_say(&nearest).of);
}

/* `attached` is the value in the same word, or NULL. */
static int take(kvpi_args *args, const kvpi_args_option *option, const char *attached, char *out)
{
    if (option->value == NULL && attached != NULL)
        return kvpi_args_wrong(args, "%s takes no value", option->name);
    if (option->value != NULL && attached == NULL && args->next == args->argc)
        return kvpi_args_wrong(args, "%s needs a value: %s", option->name, option->value);
    if (option->value != NULL && attached == NULL)
        attached = args->argv[args->next++];
    assert(option->read != NULL); /* that of --help is, and it takes no value */
    if (option->read(args, option, attached, out + option->at) != 0)
        return KVPI_ARGS_WRONG;
    const size_t number = (size_t)(option - args->is->options);
    args->given[number / 64] |= UINT64_C(1) << number % 64;
    return 0;
}

static int take_operand(const kvpi_args *args, const char *word, char *out)
{
    const kvpi_args_option *option = find(args, NULL, 0);
    assert(option != NULL); /* every command says what it does with a word */
    return option->read(args, option, word, out + option->at);
}

/* Takes the next option. *is_help: it asks for the help. */
static int take_option(kvpi_args *args, const char *word, char *out, bool *is_help)
{
    const bool is_long = word[1] == '-';
    const size_t n_bytes = is_long ? strcspn(word, "=") : strlen(word);
    const kvpi_args_option *option =
        is_long ? find(args, word, n_bytes) : find_letter(args, word[1]);
    if (option == NULL)
        return refuse(args, word, n_bytes);
    const char *attached = word + (is_long ? n_bytes + (word[n_bytes] == '=') : 2);
    const bool is_attached = is_long ? word[n_bytes] == '=' : *attached != '\0';
    *is_help = option->read == NULL && !is_attached;
    return *is_help ? 0 : take(args, option, is_attached ? attached : NULL, out);
}

int kvpi_args_parse(kvpi_args *args, const kvpi_args_command *command, int argc, char **argv,
                    void *out)
{
    bool only_operands = false, is_help = false;
    assert(command->n_options <= 128);
    *args =
        (kvpi_args){.is = command, .command = command->name, .argc = argc, .argv = argv, .next = 1};
    while (args->next < argc) {
        const char *word = argv[args->next++];
        const bool is_operand = only_operands || word[0] != '-' || word[1] == '\0';
        int wrong = 0;
        if (!only_operands && strcmp(word, "--") == 0)
            only_operands = true;
        else
            wrong =
                is_operand ? take_operand(args, word, out) : take_option(args, word, out, &is_help);
        if (wrong != 0)
            return TOOL_USAGE;
        if (is_help) {
            print_help(command);
            return TOOL_OK;
        }
    }
    return command->check == NULL || command->check(args, out) == 0 ? KVPI_ARGS_GO : TOOL_USAGE;
}

/* ------------------------------------------------------------------------------- what was given */

static bool is_given(const kvpi_args *args, const kvpi_args_option *option)
{
    const size_t number = (size_t)(option - args->is->options);
    return (args->given[number / 64] >> number % 64 & 1) != 0;
}

bool kvpi_args_given(const kvpi_args *args, const char *name)
{
    const kvpi_args_option *option = find(args, name, strlen(name));
    return option != NULL && is_given(args, option);
}

const char *kvpi_args_first(const kvpi_args *args, const char *first, const char *last)
{
    const kvpi_args_option *option = find(args, first, strlen(first));
    const kvpi_args_option *end = find(args, last, strlen(last));
    assert(option != NULL && end != NULL && option <= end);
    for (; option <= end; option++)
        if (is_given(args, option))
            return option->name;
    return NULL;
}

const char *kvpi_args_any(const kvpi_args *args, const char *const *names)
{
    while (*names != NULL && !kvpi_args_given(args, *names))
        names++;
    return *names;
}

int kvpi_args_exclude(const kvpi_args *args, const char *a, const char *b)
{
    return a == NULL || b == NULL ? 0 : kvpi_args_wrong(args, "%s and %s exclude each other", a, b);
}

int kvpi_args_needs(const kvpi_args *args, const char *name, const char *what)
{
    return name == NULL ? 0 : kvpi_args_wrong(args, "%s needs %s", name, what);
}

/* ------------------------------------------------------------------------------- the readers */

int kvpi_args_yes(const kvpi_args *args, const kvpi_args_option *option, const char *text, void *at)
{
    (void)args;
    (void)option;
    (void)text;
    *(bool *)at = true;
    return 0;
}

int kvpi_args_no(const kvpi_args *args, const kvpi_args_option *option, const char *text, void *at)
{
    (void)args;
    (void)option;
    (void)text;
    *(bool *)at = false;
    return 0;
}

int kvpi_args_text(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                   void *at)
{
    (void)args;
    (void)option;
    *(const char **)at = text;
    return 0;
}

int kvpi_args_file(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                   void *at)
{
    const char **path = at;
    if (*path != NULL)
        return kvpi_args_wrong(args, "'%s' is one %s too many, after '%s'", text, option->help,
                               *path);
    *path = text;
    return 0;
}

/* Reads digits. Gives false when there are none or the number does not fit. */
static bool read_digits(const char **at, uint64_t *out)
{
    const char *start = *at;
    *out = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        uint64_t digit = (uint64_t)(**at - '0');
        if (*out > (UINT64_MAX - digit) / 10)
            return false;
        *out = *out * 10 + digit;
    }
    return *at > start;
}

/* Reads the digits after a point as thousandths; more than three are too many. */
static bool read_thousandths(const char **at, uint64_t *out)
{
    uint64_t weight = 100;
    const char *start = *at;
    *out = 0;
    for (; **at >= '0' && **at <= '9' && weight > 0; (*at)++, weight /= 10)
        *out += (uint64_t)(**at - '0') * weight;
    return *at > start;
}

/* "12", "12.5", "12.125" -> thousandths. */
static bool read_milli(const char **at, uint64_t *out)
{
    uint64_t whole, part = 0;
    if (!read_digits(at, &whole) || whole > UINT64_MAX / 1000 - 1)
        return false;
    if (**at == '.') {
        (*at)++;
        if (!read_thousandths(at, &part))
            return false;
    }
    *out = whole * 1000 + part;
    return true;
}

int kvpi_args_number(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                     void *at)
{
    uint64_t value;
    const char *end = text;
    if (!read_digits(&end, &value) || *end != '\0' || value < option->least || value > option->most)
        return kvpi_args_wrong(args,
                               "%s is '%s', expected a whole number from %" PRIu64 " to %" PRIu64,
                               option->name, text, option->least, option->most);
    *(uint64_t *)at = value;
    return 0;
}

int kvpi_args_number32(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                       void *at)
{
    uint64_t value = 0;
    if (kvpi_args_number(args, option, text, &value) != 0)
        return KVPI_ARGS_WRONG;
    *(uint32_t *)at = (uint32_t)value;
    return 0;
}

int kvpi_args_power(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                    void *at)
{
    uint64_t value = 0;
    if (kvpi_args_number(args, option, text, &value) != 0)
        return KVPI_ARGS_WRONG;
    if ((value & (value - 1)) != 0)
        return kvpi_args_wrong(args, "%s is '%s', expected a power of two", option->name, text);
    *(uint64_t *)at = value;
    return 0;
}

int kvpi_args_milli(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                    void *at)
{
    uint64_t value;
    const uint64_t least = option->least, most = option->most;
    const char *end = text;
    char decimals[8] = "";
    if (most % 1000 != 0)
        snprintf(decimals, sizeof decimals, ".%03u", (unsigned)(most % 1000));
    if (!read_milli(&end, &value) || *end != '\0' || value < least || value > most)
        return kvpi_args_wrong(args,
                               "%s is '%s', expected a number from %" PRIu64 ".%03u to %" PRIu64
                               "%s with at most three decimals",
                               option->name, text, least / 1000, (unsigned)(least % 1000),
                               most / 1000, decimals);
    *(uint64_t *)at = value;
    return 0;
}

static int read_size(const kvpi_args *args, const char *name, const char *text, uint64_t bare_least,
                     uint64_t *out)
{
    uint64_t bytes = 0;
    switch (kvpi_amount_read(text, bare_least, &bytes)) {
    case KVPI_AMOUNT_OK: *out = bytes; return 0;
    case KVPI_AMOUNT_BARE:
        return kvpi_args_wrong(args, "%s is '%s', which is bytes: %s%s? (%sB, if bytes are meant)",
                               name, text, text, bytes <= 4096 ? "GiB" : "MiB", text);
    default:
        return kvpi_args_wrong(
            args, "%s is '%s', expected a size such as 131072, 40GiB or 80G, up to 16 PiB", name,
            text);
    }
}

int kvpi_args_size(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                   void *at)
{
    return read_size(args, option->name, text, LEAST_BARE, at);
}

int kvpi_args_bytes(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                    void *at)
{
    return read_size(args, option->name, text, 0, at);
}

int kvpi_args_choice(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                     void *at)
{
    char all[200] = "";
    kvpi_nearest nearest = kvpi_nearest_begin(text);
    for (uint32_t i = 0; option->choices[i] != NULL; i++) {
        kvpi_nearest_try(&nearest, option->choices[i]);
        if (strcmp(option->choices[i], text) == 0) {
            memcpy(at, &i, sizeof i);
            return 0;
        }
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i == 0 ? "" : ", ", option->choices[i]);
    }
    return kvpi_args_wrong(args, "%s is '%s', expected one of: %s%s", option->name, text, all,
                           kvpi_nearest_say(&nearest).of);
}

const char *const kvpi_args_on_off[] = {"on", "off", NULL};

int kvpi_args_either(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                     void *at)
{
    uint32_t choice = 0;
    if (kvpi_args_choice(args, option, text, &choice) != 0)
        return KVPI_ARGS_WRONG;
    *(bool *)at = choice == 0;
    return 0;
}

/* ---------------------------------------------------------------------------- several commands */

static void print_usage(const kvpi_args_commands *commands, FILE *out)
{
    fputs(commands->about, out);
    for (size_t i = 0; i < commands->n; i++)
        fprintf(out, "  %-*s %s\n", commands->width, commands->of[i].name, commands->of[i].help);
    fputs(commands->more, out);
}

int kvpi_args_dispatch(const kvpi_args_commands *commands, int argc, char **argv)
{
    if (argc < 2) {
        print_usage(commands, stderr);
        return TOOL_USAGE;
    }
    const char *word = argv[1];
    kvpi_nearest nearest = kvpi_nearest_begin(word);
    for (size_t i = 0; i < commands->n; i++) {
        if (strcmp(word, commands->of[i].name) == 0)
            return commands->of[i].run(argc - 1, argv + 1);
        kvpi_nearest_try(&nearest, commands->of[i].name);
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        print_usage(commands, stdout);
        return TOOL_OK;
    }
    if (word[0] == '-')
        kvpi_nearest_try(&nearest, "--help"), kvpi_nearest_try(&nearest, "--version");
    fprintf(stderr, "%s: unknown %s '%s'%s\nTry '%s --help'.\n", commands->name,
            word[0] == '-' ? "option" : commands->kind, kvpi_escape(word).of,
            kvpi_nearest_say(&nearest).of, commands->name);
    return TOOL_USAGE;
}
