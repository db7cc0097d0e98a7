/* Owns the command line's syntax: which words are options, which of them take a value, and how
 * numbers, sizes and choices are written. Every complaint names the option and ends with the way to
 * the help; nothing is guessed and nothing that follows a number is ignored.
 */
#include "tool/args.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tool/input/escape.h"

#define HELP_COLUMN 27

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

static int find_long(const kvpi_args *args, const char *text, size_t n_bytes)
{
    for (size_t i = 0; i < args->n_options; i++) {
        const char *name = args->options[i].name;
        if (strlen(name) == n_bytes && memcmp(name, text, n_bytes) == 0)
            return (int)i;
    }
    return KVPI_ARGS_WRONG;
}

static int find_letter(const kvpi_args *args, char letter)
{
    for (size_t i = 0; i < args->n_options; i++)
        if (args->options[i].letter == letter)
            return (int)i;
    return KVPI_ARGS_WRONG;
}

/* `attached` is the value in the same word, or NULL. */
static int take_value(kvpi_args *args, int option, const char *attached, const char **value)
{
    const kvpi_args_option *found = &args->options[option];
    *value = NULL;
    if (found->value == NULL) {
        if (attached != NULL)
            return kvpi_args_wrong(args, "%s takes no value", found->name);
        return option;
    }
    if (attached == NULL && args->next == args->argc)
        return kvpi_args_wrong(args, "%s needs a value: %s", found->name, found->value);
    *value = attached != NULL ? attached : args->argv[args->next++];
    return option;
}

static int take_long(kvpi_args *args, const char *word, const char **value)
{
    size_t n_bytes = strcspn(word, "=");
    int option = find_long(args, word, n_bytes);
    if (option < 0)
        return kvpi_args_wrong(args, "unknown option '%.*s'", (int)n_bytes, word);
    return take_value(args, option, word[n_bytes] == '=' ? word + n_bytes + 1 : NULL, value);
}

static int take_letter(kvpi_args *args, const char *word, const char **value)
{
    int option = find_letter(args, word[1]);
    if (option < 0)
        return kvpi_args_wrong(args, "unknown option '%s'", word);
    return take_value(args, option, word[2] != '\0' ? word + 2 : NULL, value);
}

int kvpi_args_next(kvpi_args *args, const char **value)
{
    if (args->next >= args->argc)
        return KVPI_ARGS_END;
    const char *word = args->argv[args->next++];
    if (!args->only_operands && strcmp(word, "--") == 0) {
        args->only_operands = true;
        return kvpi_args_next(args, value);
    }
    if (args->only_operands || word[0] != '-' || word[1] == '\0') {
        *value = word;
        return KVPI_ARGS_OPERAND;
    }
    return word[1] == '-' ? take_long(args, word, value) : take_letter(args, word, value);
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

int kvpi_args_number(const kvpi_args *args, int option, const char *text, const uint64_t range[2],
                     uint64_t *out)
{
    uint64_t value;
    const char *at = text;
    if (!read_digits(&at, &value) || *at != '\0' || value < range[0] || value > range[1])
        return kvpi_args_wrong(args,
                               "%s is '%s', expected a whole number from %" PRIu64 " to %" PRIu64,
                               args->options[option].name, text, range[0], range[1]);
    *out = value;
    return 0;
}

int kvpi_args_milli(const kvpi_args *args, int option, const char *text, const uint64_t range[2],
                    uint64_t *out)
{
    uint64_t value;
    const char *at = text;
    char decimals[8] = "";
    if (range[1] % 1000 != 0)
        snprintf(decimals, sizeof decimals, ".%03u", (unsigned)(range[1] % 1000));
    if (!read_milli(&at, &value) || *at != '\0' || value < range[0] || value > range[1])
        return kvpi_args_wrong(args,
                               "%s is '%s', expected a number from %" PRIu64 ".%03u to %" PRIu64
                               "%s with at most three decimals",
                               args->options[option].name, text, range[0] / 1000,
                               (unsigned)(range[0] % 1000), range[1] / 1000, decimals);
    *out = value;
    return 0;
}

/* Gives 0 for a unit that does not exist. */
static uint64_t unit_bytes(const char *unit)
{
    static const char letters[] = "kmgt";
    if (*unit == '\0' || strcmp(unit, "B") == 0)
        return 1;
    char small = (char)(*unit >= 'A' && *unit <= 'Z' ? *unit - 'A' + 'a' : *unit);
    const char *found = strchr(letters, small);
    if (found == NULL)
        return 0;
    bool decimal = strcmp(unit + 1, "B") == 0;
    if (!decimal && unit[1] != '\0' && strcmp(unit + 1, "iB") != 0 && strcmp(unit + 1, "i") != 0)
        return 0;
    uint64_t bytes = 1;
    for (const char *at = letters; at <= found; at++)
        bytes *= decimal ? 1000 : 1024;
    return bytes;
}

int kvpi_args_size(const kvpi_args *args, int option, const char *text, uint64_t *out)
{
    uint64_t milli = 0, unit = 0;
    const char *at = text;
    if (read_milli(&at, &milli))
        unit = unit_bytes(at);
    bool fraction_of_byte = unit == 1 && milli % 1000 != 0;
    if (unit == 0 || milli > UINT64_MAX / unit || fraction_of_byte || milli * unit / 1000 == 0)
        return kvpi_args_wrong(
            args, "%s is '%s', expected a size such as 131072, 40GiB or 80G, up to 16 PiB",
            args->options[option].name, text);
    *out = milli * unit / 1000;
    return 0;
}

int kvpi_args_choice(const kvpi_args *args, int option, const char *text,
                     const char *const *choices, size_t *out)
{
    char all[200] = "";
    for (size_t i = 0; choices[i] != NULL; i++) {
        if (strcmp(choices[i], text) == 0) {
            *out = i;
            return 0;
        }
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i == 0 ? "" : ", ", choices[i]);
    }
    return kvpi_args_wrong(args, "%s is '%s', expected one of: %s", args->options[option].name,
                           text, all);
}

int kvpi_args_on_off(const kvpi_args *args, int option, const char *text, bool *out)
{
    static const char *const on_off[] = {"on", "off", NULL};
    size_t choice = 0;
    if (kvpi_args_choice(args, option, text, on_off, &choice) != 0)
        return KVPI_ARGS_WRONG;
    *out = choice == 0;
    return 0;
}

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

void kvpi_args_print(const kvpi_args_option *options, size_t n_options)
{
    for (size_t i = 0; i < n_options; i++) {
        const kvpi_args_option *option = &options[i];
        if (option->help == NULL)
            continue;
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
}
