/* tls: TLS of connections, by libssl. The certificate must be of the host that the URL names, or of
 * `name`. A write to a connection that the server has closed raises no SIGPIPE. */
#ifndef KVPI_STORE_REDIS_TLS_H
#define KVPI_STORE_REDIS_TLS_H

#include "store/redis/link/link_place.h"

#include <sys/types.h>

typedef struct ssl_ctx_st kvpi_tls_context;
typedef struct bio_method_st kvpi_tls_method;
typedef struct ssl_st kvpi_tls_stream;

struct kvpi_tls {
    kvpi_tls_context *context;
    kvpi_tls_method *method;
    char name[KVPI_PLACE_HOST]; /* "": the host */
};

/* Read ca=FILE, cert=FILE, key=FILE and name=NAME of a URL, and the files. Without ca, the
 * system's authorities are trusted. KVP_OK; KVP_E_ARG, with a sentence; KVP_E_NO_MEMORY. */
kvp_status kvpi_tls_open(struct kvpi_tls *tls, struct kvpi_url *url, char *out_why,
                         size_t why_bytes);
void kvpi_tls_close(struct kvpi_tls *tls);

/* Begin with a socket that is connected; NULL: no memory. The handshake runs with what is read. */
kvpi_tls_stream *kvpi_tls_start(const struct kvpi_tls *tls, const char *host, int fd);
void kvpi_tls_stop(kvpi_tls_stream *stream);

enum { KVPI_TLS_LOST = -1, KVPI_TLS_REFUSED = -2 };

/* Bytes; 0: later; LOST or REFUSED, by us or by the other side: the sentence tells why. */
ssize_t kvpi_tls_read(kvpi_tls_stream *stream, void *out_bytes, size_t n_bytes, char *out_why,
                      size_t why_bytes);
ssize_t kvpi_tls_write(kvpi_tls_stream *stream, const void *bytes, size_t n_bytes, char *out_why,
                       size_t why_bytes);

/* What to wait for, if there is something to send; as of poll(2). */
short kvpi_tls_events(const kvpi_tls_stream *stream, int sends);

#endif
