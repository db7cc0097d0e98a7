/* url: cut in place, one pass. Values are taken as they are: nothing is unescaped. What is said
 * of a URL has kvpi_url_show's text alone. */
#include "store/url.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/amount.h"

#define LEAST_BARE 4096 /* bytes: no store is smaller */

kvp_status kvpi_why(kvp_status status, char *out_why, size_t why_bytes, const char *format, ...)
{
    if (!out_why || why_bytes == 0)
        return status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(out_why, why_bytes, format, arguments);
    va_end(arguments);
    return status;
}

/* -------------------------------------------------------------------------------------- showing */

#define SECRET "secret="

struct shown {
    char *text;
    size_t capacity;
    size_t n; /* of the whole text */
};

static void show(struct shown *shown, const char *text, size_t n_bytes)
{
    for (; n_bytes > 0; n_bytes--, shown->n++, text++)
        if (shown->n + 1 < shown->capacity)
            shown->text[shown->n] = *text;
    shown->text[shown->n < shown->capacity ? shown->n : shown->capacity - 1] = 0;
}

static int begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* The value of the first option "secret" that is not a file's name; NULL: there is none. */
static const char *find_secret(const char *text)
{
    for (const char *at = text; (at = strstr(at, SECRET)) != NULL; at++)
        if (at > text && strchr("?&", at[-1]) && !begins(at + strlen(SECRET), "file:"))
            return at + strlen(SECRET);
    return NULL;
}

static const char *skip_value(const char *value)
{
    return value + strcspn(value, "&");
}

/* What ends at `at` and may be a password. A user's name is shown where it must be one. */
static const char *find_password(const char *url, const char *at)
{
    const char *colon = memchr(url, ':', (size_t)(at - url));
    if (!colon)
        return url;
    const char *login = colon + 1;
    const int is_whole = begins(url, "redis://") || begins(url, "rediss://");
    while (login < at && *login == '/')
        login++;
    const char *second = is_whole ? memchr(login, ':', (size_t)(at - login)) : NULL;
    return second ? second + 1 : login;
}

size_t kvpi_url_show(const char *url, char *out_text, size_t text_bytes)
{
    struct shown shown = {out_text, text_bytes, 0};
    const int has_no_login = begins(url, "file:") || begins(url, "memory:");
    const char *at = has_no_login ? NULL : strrchr(url, '@');
    const char *secret = find_secret(url);
    if (at) {
        const char *password = find_password(url, at);
        show(&shown, url, (size_t)(password - url));
        show(&shown, "***", 3);
        url = secret && secret <= at ? skip_value(secret) : at;
    }
    while ((secret = find_secret(url)) != NULL) {
        show(&shown, url, (size_t)(secret - url));
        show(&shown, "***", 3);
        url = skip_value(secret);
    }
    show(&shown, url, strlen(url));
    return shown.n;
}

/* -------------------------------------------------------------------------------------- reading */

/* Ends the piece at `mark`; gives what follows, or NULL. */
static char *cut(char *text, char mark)
{
    char *at = strchr(text, mark);
    if (!at)
        return NULL;
    *at = 0;
    return at + 1;
}

static int has_option(const struct kvpi_url *url, const char *name)
{
    for (uint32_t i = 0; i < url->n_options; i++)
        if (strcmp(url->names[i], name) == 0)
            return 1;
    return 0;
}

kvp_status kvpi_url_read(const char *text, struct kvpi_url *out_url, char *out_why,
                         size_t why_bytes)
{
    if (!text || strlen(text) >= sizeof out_url->text)
        return kvpi_why(KVP_E_ARG, out_why, why_bytes, "url is NULL or longer than %d bytes",
                        KVPI_URL_BYTES - 1);
    char shown[KVPI_URL_BYTES];
    kvpi_url_show(text, shown, sizeof shown);
    memset(out_url, 0, sizeof *out_url);
    memcpy(out_url->text, text, strlen(text) + 1);
    char *options = cut(out_url->text, '?');
    out_url->scheme = out_url->text;
    out_url->path = cut(out_url->text, ':');
    if (!out_url->path || !*out_url->scheme)
        return kvpi_why(KVP_E_ARG, out_why, why_bytes,
                        "url is \"%s\", expected SCHEME:PATH?NAME=VALUE", shown);
    while (options && *options) {
        char *name = options;
        options = cut(name, '&');
        const char *value = cut(name, '=');
        if (!value || !*name || has_option(out_url, name))
            return kvpi_why(KVP_E_ARG, out_why, why_bytes,
                            "an option of \"%s\" is empty, given twice, or without a value", shown);
        if (out_url->n_options == KVPI_URL_OPTIONS)
            return kvpi_why(KVP_E_ARG, out_why, why_bytes, "the url has more than %d options",
                            KVPI_URL_OPTIONS);
        out_url->names[out_url->n_options] = name;
        out_url->values[out_url->n_options++] = value;
    }
    return KVP_OK;
}

const char *kvpi_url_option(struct kvpi_url *url, const char *name)
{
    for (uint32_t i = 0; i < url->n_options; i++) {
        if (strcmp(url->names[i], name) == 0) {
            url->used[i] = 1;
            return url->values[i];
        }
    }
    return NULL;
}

/* Cut a number off; gives what follows it, or NULL: there is none, or it is too large. */
static const char *take_number(const char *text, uint64_t *out_number)
{
    uint64_t number = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && number < UINT64_MAX / 100; at++)
        number = number * 10 + (uint64_t)(*at - '0');
    *out_number = number;
    return at == text || number == 0 ? NULL : at;
}

kvp_status kvpi_url_size(struct kvpi_url *url, const char *name, uint64_t *bytes, char *out_why,
                         size_t why_bytes)
{
    const char *value = kvpi_url_option(url, name);
    uint64_t number = 0;
    if (!value)
        return KVP_OK;
    const int read = kvpi_amount_read(value, LEAST_BARE, &number);
    if (read == KVPI_AMOUNT_BARE)
        return kvpi_why(KVP_E_ARG, out_why, why_bytes, "%s is \"%s\", which is bytes: %sGiB?", name,
                        value, value);
    if (read != KVPI_AMOUNT_OK || number > INT64_MAX)
        return kvpi_why(KVP_E_ARG, out_why, why_bytes,
                        "%s is \"%s\", expected a size such as 10GiB, 512MiB or 1TB", name, value);
    *bytes = number;
    return KVP_OK;
}

static uint64_t seconds_of(const char *unit)
{
    static const struct {
        const char *unit;
        uint64_t seconds;
    } units[] = {{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
    for (unsigned i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(unit, units[i].unit) == 0)
            return units[i].seconds;
    return 0;
}

kvp_status kvpi_url_time(struct kvpi_url *url, const char *name, uint64_t *seconds, char *out_why,
                         size_t why_bytes)
{
    const char *value = kvpi_url_option(url, name);
    if (!value)
        return KVP_OK;
    uint64_t number;
    const char *unit = take_number(value, &number);
    const uint64_t factor = unit ? seconds_of(unit) : 0;
    if (factor == 0 || number > INT32_MAX / factor)
        return kvpi_why(KVP_E_ARG, out_why, why_bytes,
                        "%s is \"%s\", expected a number above 0 with s, m, h or d", name, value);
    *seconds = number * factor;
    return KVP_OK;
}

kvp_status kvpi_url_all_used(const struct kvpi_url *url, char *out_why, size_t why_bytes)
{
    for (uint32_t i = 0; i < url->n_options; i++)
        if (!url->used[i])
            return kvpi_why(KVP_E_ARG, out_why, why_bytes, "\"%s:\" has no option \"%s\"",
                            url->scheme, url->names[i]);
    return KVP_OK;
}
