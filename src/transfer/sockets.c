/* sockets: see the header. */
#define _DEFAULT_SOURCE /* F_DUPFD_CLOEXEC, TIOCOUTQ */

#include "transfer/sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* a system without it: the program ignores SIGPIPE */
#endif

int kvpi_socket_is_stream(int socket)
{
    int type;
    socklen_t n = sizeof type;
    struct sockaddr_storage peer;
    socklen_t n_peer = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &n) == 0 && type == SOCK_STREAM &&
           getpeername(socket, (struct sockaddr *)&peer, &n_peer) == 0;
}

int kvpi_socket_keep(int socket)
{
    const int kept = fcntl(socket, F_DUPFD_CLOEXEC, 0), yes = 1;
    if (kept >= 0) /* a Unix socket has no such option, and needs none */
        (void)setsockopt(kept, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return kept;
}

static int must_wait(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ENOBUFS;
}

long kvpi_socket_send(int socket, const void *bytes, size_t n_bytes)
{
    const ssize_t n = send(socket, bytes, n_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n >= 0 ? (long)n : must_wait() ? 0 : -1;
}

long kvpi_socket_receive(int socket, void *out_bytes, size_t n_bytes)
{
    const ssize_t n = recv(socket, out_bytes, n_bytes, MSG_DONTWAIT);
    return n > 0 ? (long)n : n < 0 && must_wait() ? 0 : -1;
}

/* The count of a peer that has reset the connection stays as it was. */
int kvpi_socket_flushed(int socket)
{
#ifdef TIOCOUTQ
    int n = 0;
    struct pollfd state = {.fd = socket};
    if (ioctl(socket, TIOCOUTQ, &n) != 0 || n == 0)
        return 1;
    return poll(&state, 1, 0) > 0 && (state.revents & (POLLERR | POLLHUP)) ? -1 : 0;
#else
    (void)socket;
    return 1;
#endif
}

/* Bytes that were not read would make the system drop what is on its way to the peer. */
void kvpi_socket_close(int socket)
{
    char rest[4096];
    if (socket < 0)
        return;
    (void)shutdown(socket, SHUT_WR);
    for (int i = 0; i < 1024 && kvpi_socket_receive(socket, rest, sizeof rest) > 0; i++)
        ;
    (void)shutdown(socket, SHUT_RD);
    (void)close(socket);
}
