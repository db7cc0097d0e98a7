/* net: TCP over IPv4 and IPv6. */
#define _GNU_SOURCE
#include "store/redis/link/net.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/quiet.h"

static int start(void *context, void *(*run)(void *), void *argument)
{
    (void)context;
    pthread_t thread;
    const int error = kvpi_quiet_start(&thread, run, argument);
    if (error == 0)
        (void)pthread_detach(thread);
    return error;
}

static uint32_t look_up(void *context, const char *host, int port,
                        struct kvpi_net_address out_addresses[KVPI_NET_ADDRESSES], char *out_why,
                        size_t why_bytes)
{
    (void)context;
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char service[12];
    uint32_t n = 0;
    snprintf(service, sizeof service, "%d", port);
    const int error = getaddrinfo(host, service, &hints, &found);
    if (error != 0) {
        snprintf(out_why, why_bytes, "%s", gai_strerror(error));
        return 0;
    }
    for (const struct addrinfo *at = found; at && n < KVPI_NET_ADDRESSES; at = at->ai_next) {
        if (at->ai_addrlen > sizeof out_addresses[n].at)
            continue;
        memcpy(&out_addresses[n].at, at->ai_addr, at->ai_addrlen);
        out_addresses[n++].n_bytes = at->ai_addrlen;
    }
    freeaddrinfo(found);
    if (n == 0)
        snprintf(out_why, why_bytes, "the host has no address");
    return n;
}

/* Requests are small and wait for an answer: each is sent at once. */
static int open_socket(void *context, const struct kvpi_net_address *address)
{
    (void)context;
    const int on = 1;
    const int fd = socket(address->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0 &&
        (connect(fd, (const struct sockaddr *)&address->at, address->n_bytes) == 0 ||
         errno == EINPROGRESS))
        return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int connected(void *context, int fd)
{
    (void)context;
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    if (poll(&poll_fd, 1, 0) <= 0)
        return EAGAIN;
    int error = 0;
    socklen_t n = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0 ? errno : error;
}

static ssize_t read_socket(void *context, int fd, void *out_bytes, size_t n_bytes)
{
    (void)context;
    return recv(fd, out_bytes, n_bytes, MSG_DONTWAIT);
}

static ssize_t write_socket(void *context, int fd, struct iovec *pieces, size_t n_pieces)
{
    (void)context;
    const struct msghdr message = {.msg_iov = pieces, .msg_iovlen = n_pieces};
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void close_socket(void *context, int fd)
{
    (void)context;
    close(fd);
}

const struct kvpi_net kvpi_net_system = {
    .start = start,
    .look_up = look_up,
    .connect = open_socket,
    .connected = connected,
    .read = read_socket,
    .write = write_socket,
    .close = close_socket,
};
