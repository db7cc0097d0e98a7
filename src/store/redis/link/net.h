/* net: names and sockets. Whatever a connection asks of the system goes through this table: a test
 * puts one in its place that answers from memory. Only TLS reads and writes its socket itself. */
#ifndef KVPI_STORE_REDIS_NET_H
#define KVPI_STORE_REDIS_NET_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { KVPI_NET_ADDRESSES = 8 };

struct kvpi_net_address {
    struct sockaddr_storage at;
    socklen_t n_bytes;
};

struct kvpi_net {
    /* Run this beside the caller. 0: done; else an error. */
    int (*start)(void *context, void *(*run)(void *), void *argument);
    /* The addresses of a host, the best first. Blocks while a name server does.
     * Gives: their number; 0: none, as the sentence tells */
    uint32_t (*look_up)(void *context, const char *host, int port,
                        struct kvpi_net_address out_addresses[KVPI_NET_ADDRESSES], char *out_why,
                        size_t why_bytes);
    /* A socket that never blocks and begins to connect; -1, and errno. */
    int (*connect)(void *context, const struct kvpi_net_address *address);
    /* 0: the socket is connected; EAGAIN: not yet; another error. */
    int (*connected)(void *context, int fd);
    /* As recv(2) and sendmsg(2). No SIGPIPE is raised. */
    ssize_t (*read)(void *context, int fd, void *out_bytes, size_t n_bytes);
    ssize_t (*write)(void *context, int fd, struct iovec *pieces, size_t n_pieces);
    void (*close)(void *context, int fd);
    void *context;
};

extern const struct kvpi_net kvpi_net_system;

#endif
