/* guard: whose requests are answered. A browser that shows another site's page is not let in: the
 * page could read a server on this machine otherwise. */
#ifndef KVPI_SERVE_GUARD_H
#define KVPI_SERVE_GUARD_H

#include "api.h"

typedef struct kvpi_headers {
    const char *authorization; /* each NULL: not sent */
    const char *host;
    const char *origin;
} kvpi_headers;

/* 0: let in; else refused. With `is_public` no key is asked for. */
int kvpi_guard(const kvpi_options *options, const kvpi_headers *headers, int is_public,
               kvpi_refusal *out_refusal);

#endif
