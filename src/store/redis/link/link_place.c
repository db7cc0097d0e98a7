/* link_place: one pass from left to right; what does not fit is refused, nothing is cut. */
#include "store/redis/link/link_place.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_PORT = 6379, DATABASES_MAX = 65535 };

static int hex_of(char c)
{
    static const char digits[] = "0123456789abcdef";
    if (c >= 'A' && c <= 'F')
        c = (char)(c - 'A' + 'a');
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Copies n bytes and turns %XX into what it stands for. 0: too long, or no such byte. */
static int unescape(const char *text, size_t n, char *out, size_t capacity)
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '%') {
            if (i + 2 >= n || hex_of(text[i + 1]) < 0 || hex_of(text[i + 2]) < 0)
                return 0;
            c = (char)(hex_of(text[i + 1]) * 16 + hex_of(text[i + 2]));
            i += 2;
        }
        if (c == 0 || used + 1 >= capacity)
            return 0;
        out[used++] = c;
    }
    out[used] = 0;
    return 1;
}

/* A number of 1 to 5 digits that ends at `end`. */
static int read_number(const char *text, const char *end, int least, int most, int *out)
{
    int number = 0;
    if (text == end || end - text > 5)
        return 0;
    for (; text < end; text++) {
        if (*text < '0' || *text > '9')
            return 0;
        number = number * 10 + (*text - '0');
    }
    *out = number;
    return number >= least && number <= most;
}

static int read_login(const char *text, const char *end, struct kvpi_place_of_server *out)
{
    const char *colon = memchr(text, ':', (size_t)(end - text));
    if (!colon) /* only a user: as redis-cli reads it, there is no password then */
        return 0;
    return unescape(text, (size_t)(colon - text), out->user, sizeof out->user) &&
           unescape(colon + 1, (size_t)(end - colon - 1), out->password, sizeof out->password) &&
           out->password[0] != 0;
}

static int read_address(const char *text, const char *end, struct kvpi_place_of_server *out)
{
    const char *host_end;
    if (*text == '[') {
        host_end = memchr(text, ']', (size_t)(end - text));
        if (!host_end)
            return 0;
        text++;
    } else {
        host_end = memchr(text, ':', (size_t)(end - text));
        if (!host_end)
            host_end = end;
    }
    if (host_end == text || !unescape(text, (size_t)(host_end - text), out->host, sizeof out->host))
        return 0;
    const char *rest = host_end + (*host_end == ']');
    if (rest == end)
        return 1;
    return *rest == ':' && read_number(rest + 1, end, 1, 65535, &out->port);
}

kvp_status kvpi_place_read(const char *path, struct kvpi_place_of_server *out_place, char *out_why,
                           size_t why_bytes)
{
    memset(out_place, 0, sizeof *out_place);
    out_place->port = DEFAULT_PORT;
    int good = strncmp(path, "//", 2) == 0;
    const char *at = path + (good ? 2 : 0);
    const char *slash = strchr(at, '/');
    const char *end = slash ? slash : at + strlen(at);
    /* The last one: a password may have an unescaped @. */
    const char *login_end = NULL;
    for (const char *c = at; c < end; c++)
        if (*c == '@')
            login_end = c;
    if (good && login_end) {
        good = read_login(at, login_end, out_place);
        at = login_end + 1;
    }
    good = good && read_address(at, end, out_place);
    if (good && slash && slash[1])
        good =
            read_number(slash + 1, slash + strlen(slash), 0, DATABASES_MAX, &out_place->database);
    if (good)
        return KVP_OK;
    return kvpi_why(KVP_E_ARG, out_why, why_bytes,
                    "the url of the server is not redis://USER:PASSWORD@HOST:PORT/DATABASE, where "
                    "only HOST must be there; special characters are written as %%XX");
}

int kvpi_place_is_loopback(const struct kvpi_place_of_server *place)
{
    return strcmp(place->host, "localhost") == 0 || strcmp(place->host, "::1") == 0 ||
           strncmp(place->host, "127.", 4) == 0;
}
