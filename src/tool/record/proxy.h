/* proxy: an HTTP proxy in front of an engine that records what passes. Answers are forwarded as
 * they come, and not changed. libevent has the HTTP. */
#ifndef KVPI_RECORD_PROXY_H
#define KVPI_RECORD_PROXY_H

#include "tool/recording/recording.h"

typedef struct kvpi_proxy_options {
    const char *command; /* for messages */
    const char *engine;  /* its URL, for messages */
    const char *host;    /* of the engine */
    const char *listen_host;
    const char *session_header;
    uint16_t port, listen_port; /* 0 to listen: any */
    int64_t began_us;           /* since 1970 */
} kvpi_proxy_options;

/* Forward and record until SIGINT or SIGTERM: then no more is accepted, and what is under way ends,
 * or is cut by a second signal.
 *
 * Returns: an exit status
 */
int kvpi_proxy_run(const kvpi_proxy_options *options, kvpi_recorder *recorder);

#endif
