/* http: the server, by libmicrohttpd. Each connection has a thread, which may wait; the number of
 * connections, their headers and their bodies are limited. */
#ifndef KVPI_SERVE_HTTP_H
#define KVPI_SERVE_HTTP_H

#include "api.h"
#include "metrics.h"

struct MHD_Daemon;

typedef struct kvpi_http {
    kvpi_api *api;
    struct MHD_Daemon *daemon;
    kvpi_counts counts;
    atomic_uint calls; /* requests that are being answered */
    uint32_t port;     /* where it listens */
} kvpi_http;

/* -1: it cannot listen there. */
int kvpi_http_start(kvpi_http *http, kvpi_api *api);

/* Ends all connections; those that wait for a job have ended if the loop was stopped before. */
void kvpi_http_stop(kvpi_http *http);

#endif
