/* socket_link: see the header. One buffer each way: post sends; lend says whether there is room. */
#define _POSIX_C_SOURCE 200809L

#include "socket_link.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

static kvp_status lend(void *context, size_t n_bytes, void **out_buffer)
{
    socket_link *l = context;
    struct pollfd can_write = {.fd = l->fd, .events = POLLOUT};
    if (n_bytes == 0 || n_bytes > SOCKET_MESSAGE)
        return KVP_E_ARG;
    if (l->broken == KVP_OK && poll(&can_write, 1, 0) == 0)
        return KVP_E_AGAIN;
    if (l->broken == KVP_OK && (can_write.revents & (POLLERR | POLLHUP)) != 0)
        l->broken = KVP_E_PEER;
    *out_buffer = l->out;
    return l->broken;
}

static kvp_status post(void *context, size_t n_bytes)
{
    socket_link *l = context;
    if (l->broken == KVP_OK && send(l->fd, l->out, n_bytes, MSG_NOSIGNAL) != (ssize_t)n_bytes)
        l->broken = KVP_E_PEER;
    return l->broken;
}

static kvp_status take(void *context, const void **out_bytes, size_t *out_n_bytes)
{
    socket_link *l = context;
    if (l->n_in == 0) {
        ssize_t n = recv(l->fd, l->in, sizeof l->in, MSG_DONTWAIT);
        if (n < 0 && errno == ECONNRESET) /* told once, before what had arrived */
            n = recv(l->fd, l->in, sizeof l->in, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return KVP_E_AGAIN;
        if (n <= 0) {
            l->broken = KVP_E_PEER;
            return KVP_E_PEER;
        }
        l->n_in = (size_t)n;
    }
    *out_bytes = l->in;
    *out_n_bytes = l->n_in;
    return KVP_OK;
}

static void give_back(void *context)
{
    socket_link *l = context;
    l->n_in = 0;
}

static void progress(void *context)
{
    (void)context;
}

kvp_link socket_link_end(socket_link *link, int fd)
{
    link->fd = fd;
    link->broken = KVP_OK;
    link->n_in = 0;
    return (kvp_link){.struct_size = sizeof(kvp_link),
                      .max_message = SOCKET_MESSAGE,
                      .context = link,
                      .lend = lend,
                      .post = post,
                      .take = take,
                      .give_back = give_back,
                      .progress = progress};
}
