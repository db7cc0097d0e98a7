/* url: "scheme:path?name=value&name=value", as stores are named. */
#ifndef KVPI_STORE_URL_H
#define KVPI_STORE_URL_H

#include <kvpager/types.h>

enum { KVPI_URL_BYTES = 4096, KVPI_URL_OPTIONS = 16 };

struct kvpi_url {
    char text[KVPI_URL_BYTES]; /* cut into pieces; the pointers below point into it */
    const char *scheme;
    const char *path; /* "" when there is none */
    const char *names[KVPI_URL_OPTIONS];
    const char *values[KVPI_URL_OPTIONS];
    int used[KVPI_URL_OPTIONS];
    uint32_t n_options;
};

/* A URL, or what was to be one, without its secrets: in place of a password, or of a secret that
 * is no file's, there is ***. Everything up to the last @ may belong to a password that was not
 * escaped. Cut to text_bytes. Gives the bytes of the whole text. */
size_t kvpi_url_show(const char *url, char *out_text, size_t text_bytes);

/* Write a sentence for the caller, cut to why_bytes; NULL is ignored. Gives `status`. */
kvp_status kvpi_why(kvp_status status, char *out_why, size_t why_bytes, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Cut a URL into pieces. KVP_OK; KVP_E_ARG. */
kvp_status kvpi_url_read(const char *text, struct kvpi_url *out_url, char *out_why,
                         size_t why_bytes);

/* The value of an option, which counts as used from now on; NULL: it is not there. */
const char *kvpi_url_option(struct kvpi_url *url, const char *name);

/* The value of an option in bytes (base/amount.h). Unchanged when the option is not there. KVP_OK;
 * KVP_E_ARG: not a size, or a small number without a unit. */
kvp_status kvpi_url_size(struct kvpi_url *url, const char *name, uint64_t *bytes, char *out_why,
                         size_t why_bytes);

/* The value of an option in seconds: a number and s, m, h or d. As kvpi_url_size. */
kvp_status kvpi_url_time(struct kvpi_url *url, const char *name, uint64_t *seconds, char *out_why,
                         size_t why_bytes);

/* KVP_E_ARG, and names it, if an option was not used. */
kvp_status kvpi_url_all_used(const struct kvpi_url *url, char *out_why, size_t why_bytes);

#endif
